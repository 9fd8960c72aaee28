#!/usr/bin/env python3
"""Time after which a process gets the memory of one that was killed, under a limit that they share.

A holder takes `--mib` of a limit that has room for one and a half of it beside the contexts, and is killed. Another process asks until
it gets as much. Prints the times, natively (the device then has room for both: how long the driver's memory is in use) and with
the library.

  python3 tests/gpu/killed_holder.py --library dist/libgpushim.so
"""

import argparse
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MIB = 1 << 20
CONTEXTS = 1200
"""MiB for two contexts."""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--mib", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--asks", choices=["once", "until it has"], help="for the processes themselves")
    return parser.parse_args()


def ask(options):
    """Takes the memory on each line of the input, once or until it has it, and keeps it until the next line."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context, block = ctypes.c_void_p(), ctypes.c_uint64()
    for code in (cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxSetCurrent(context)):
        if code:
            sys.exit(f"the driver gave {code}")
    print("ready", flush=True)
    for _ in sys.stdin:
        asked = 0
        while True:
            asked += 1
            code = cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(options.mib * MIB))
            if code == 0 or options.asks == "once":
                break
            time.sleep(0.001)
        print(code, asked, flush=True)
        if options.asks != "once":
            cuda.cuMemFree_v2(block)


class Asker:
    """A process that asks for memory."""

    def __init__(self, options, asks, environment):
        command = [sys.executable, __file__, "--library", options.library, "--mib", str(options.mib), "--asks", asks]
        self.process = subprocess.Popen(command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def is_ready(self):
        return self.process.stdout.readline() == "ready\n"

    def begin(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def answer(self):
        """Code and number of requests."""
        return [int(word) for word in self.process.stdout.readline().split()]


def times(options, environment):
    """Milliseconds from the kill to the memory, and how many requests that took."""
    found = []
    waiting = Asker(options, "until it has", environment)
    assert waiting.is_ready()
    for _ in range(options.rounds):
        holder = Asker(options, "once", environment)
        assert holder.is_ready()
        holder.begin()
        code, _ = holder.answer()
        assert code == 0, f"the holder got error {code}"
        begun = time.perf_counter()
        holder.process.send_signal(signal.SIGKILL)
        waiting.begin()
        code, asked = waiting.answer()
        found.append((1000 * (time.perf_counter() - begun), asked))
        holder.process.wait()
    waiting.process.stdin.close()
    waiting.process.wait()
    return sorted(found)


def main():
    options = arguments()
    if options.asks:
        return ask(options)
    for policy in (None, "auto", "off"):
        with tempfile.TemporaryDirectory() as folder:
            environment = dict(os.environ)
            if policy:
                environment |= {
                    "LD_PRELOAD": str(options.library.resolve()),
                    "GPUSHIM_POLICY": policy,
                    "GPUSHIM_LIMIT": f"{options.mib * 3 // 2 + CONTEXTS}M",
                    "GPUSHIM_LIMIT_SCOPE": f"{folder}/ledger",
                    "GPUSHIM_LIMIT_REQUIRED": "on",
                    "GPUSHIM_TRACE": f"{folder}/%p.trace",
                }
            found = times(options, environment)
        ms = [one for one, _ in found]
        requests = max(asked for _, asked in found)
        print(f"{policy or 'natively'}: median {ms[len(ms) // 2]:.0f} ms, most {ms[-1]:.0f} ms, at most {requests} requests")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Processes on one GPU that need its memory in turn, on elastic segments (GPUSHIM_ELASTIC), taken over and natively.

Each process trains a model in its turns, and keeps only the weights between them. What they have together is the sum of what
PyTorch allocates at most in each, divided by `--over`. One more process takes the rest away, or with `--ledger` they share
a limit, beside which their contexts have what they need. Prints a line for each way; exit code 1 unless all processes end with gpushim
with the losses and weights of the native run on an empty GPU, and none does so natively. With `--tensor` a turn only makes
and drops a tensor: the limit is 1.75 times its size, and the time to get it is printed.

  python3 tests/gpu/torch_turns.py --library dist/libgpushim.so
  python3 tests/gpu/torch_turns.py --library dist/libgpushim.so --ledger --processes 4 [--at-once 2]
  python3 tests/gpu/torch_turns.py --library dist/libgpushim.so --ledger --tensor 1024 --turns 20
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MIB = 1 << 20
WAYS = {
    # name -> environment with gpushim; None: natively
    "natively": None,
    "elastic auto": {"GPUSHIM_POLICY": "off", "GPUSHIM_ELASTIC": "auto"},
    "elastic on": {"GPUSHIM_POLICY": "off", "GPUSHIM_ELASTIC": "on"},
}
SHARED = {
    # The same under a limit, which PyTorch by itself does not know how to share.
    "PyTorch's own cache": {"GPUSHIM_POLICY": "off"},
    "elastic auto": WAYS["elastic auto"],
    "taken over": {"GPUSHIM_TAKEOVER": "torch"},
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", help="libgpushim.so")
    parser.add_argument("--turns", type=int, default=4, help="of each process")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--at-once", type=int, nargs="+", default=[1], help="turns at a time, one figure after another")
    parser.add_argument("--ledger", action="store_true", help="share a limit")
    parser.add_argument("--tensor", type=int, help="MiB; a turn makes and drops a tensor of this size")
    parser.add_argument("--over", type=float, default=1.6)
    parser.add_argument("--timeout", type=int, default=100, help="seconds for one way")
    parser.add_argument("--trains", type=int, help="for the processes themselves: which turns are this one's")
    parser.add_argument("--takes", action="store_true", help="for the third process: all memory but the bytes on its input")
    parser.add_argument("--alone", action="store_true", help="do not wait for turns")
    parser.add_argument("--folder", type=Path, help="where the processes wait for each other")
    return parser.parse_args()


def wait_for(path, size):
    """Waits until a file has this many bytes."""
    while size > 0 and not (path.is_file() and path.stat().st_size >= size):
        time.sleep(0.002)


def add_to(path):
    with open(path, "ab") as file:
        file.write(b".")


def train(options):
    """One of the processes: prints losses, a digest of the weights, and what it reserved."""
    sys.path.insert(0, str(Path(__file__).parent))
    from common import deterministic_torch, tensor_digest

    torch = deterministic_torch()
    device, generator = torch.device("cuda"), torch.Generator().manual_seed(options.trains)
    torch.manual_seed(options.trains)
    wide = [layer for _ in range(16) for layer in (torch.nn.Linear(1024, 1024), torch.nn.GELU())]
    model = torch.nn.Sequential(*wide).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    turns = options.folder / "turns"

    def step(rows):
        inputs = torch.full((rows, 1024), 0.5, device=device)
        loss = model(inputs).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.item()

    def tensor(size):
        begun = time.perf_counter()
        made = torch.empty(size, dtype=torch.uint8, device=device)
        taken = time.perf_counter() - begun
        made.fill_(1)
        torch.cuda.synchronize()
        return taken

    def trained(turn):
        begun = time.perf_counter()
        for _ in range(4):
            rows = int(torch.randint(24, 65, (1,), generator=generator)) * 1024
            print("loss", turn, rows, step(rows))
        return time.perf_counter() - begun

    step(1024)
    torch.cuda.empty_cache()
    add_to(options.folder / "ready")
    seconds = []
    for turn in range(options.turns):
        if not options.alone:
            wait_for(turns, options.processes * turn + options.trains - options.at_once[0] + 1)
            wait_for(options.folder / "go", 1)
        seconds.append(tensor(options.tensor * MIB) if options.tensor else trained(turn))
        add_to(turns)
    print("weights", tensor_digest(torch.cat([p.reshape(-1) for p in model.parameters()])))
    free, total = torch.cuda.mem_get_info()
    outside = total - free - torch.cuda.memory_reserved()
    slow = sorted(round(one, 4) for one in seconds)
    print("reserved", torch.cuda.max_memory_reserved(), torch.cuda.max_memory_allocated(), outside,
          "seconds, median and most:", slow[len(slow) // 2], slow[-1], file=sys.stderr)
    if not options.alone:
        wait_for(turns, options.processes * options.turns)


def take(_):
    """Takes memory until only the bytes on the input are left, and keeps it until the input ends."""
    import torch

    left = int(sys.stdin.readline())
    free, _total = torch.cuda.mem_get_info()
    kept = torch.empty(max(0, free - left), dtype=torch.uint8, device="cuda")
    print("taken", kept.numel(), torch.cuda.mem_get_info()[0], flush=True)
    sys.stdin.read()


class Trainer:
    """One of the processes."""

    def __init__(self, options, way, folder, which, at_once=None):
        environment = os.environ.copy()
        if way is not None:
            environment |= way | {"LD_PRELOAD": str(Path(options.library).resolve())}
            environment |= {"GPUSHIM_TRACE": str(folder / f"{which}.trace")}
        more = ["--tensor", str(options.tensor)] if options.tensor else []
        more += ["--at-once", str(at_once)] if at_once else ["--alone"]
        command = [sys.executable, __file__, "--trains", str(which), "--folder", folder, "--turns", str(options.turns),
                   "--processes", str(options.processes), *more]
        self.process = subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def end(self, timeout):
        """How it ended, what it printed, and for a person: what it reserved or why it failed."""
        try:
            stdout, stderr = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            stdout, stderr = self.process.communicate()
        lines = stderr.splitlines()
        said = [line for line in lines if line.startswith(("gpushim", "reserved"))]
        error = [line[:100] for line in lines if "Error" in line][-1:]
        return self.process.returncode, stdout, said + error


class Taker:
    """The process that takes memory away."""

    def __init__(self):
        command = [sys.executable, __file__, "--takes"]
        self.process = subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def take_all_but(self, left):
        """Bytes that are left then; 0 if they are not known."""
        self.process.stdin.write(f"{left}\n")
        self.process.stdin.flush()
        taken = self.process.stdout.readline().split()
        return int(taken[2]) if len(taken) == 3 else 0

    def end(self):
        self.process.communicate("")


def together(options, name, at_once, left, likes):
    """All processes at a time. Whether they ended with the native results, and whether one ran out of memory."""
    with tempfile.TemporaryDirectory() as folder:
        folder, way = Path(folder), (SHARED if options.ledger else WAYS)[name]
        if options.ledger:
            way = way | {"GPUSHIM_LIMIT": f"{left // MIB}M", "GPUSHIM_LIMIT_SCOPE": str(folder / "ledger"), "GPUSHIM_LIMIT_REQUIRED": "on"}
        taker = None if options.ledger else Taker()
        trainers = [Trainer(options, way, folder, which, at_once) for which in range(options.processes)]
        ready = folder / "ready"
        while not (ready.is_file() and ready.stat().st_size == options.processes):
            if any(trainer.process.poll() is not None for trainer in trainers):
                sys.exit(f"{name}: a process ended before its first turn: {[trainer.end(1) for trainer in trainers]}")
            time.sleep(0.01)
        if taker:
            left = taker.take_all_but(left)
        else:
            time.sleep(2)  # Time for NVML's figure of the contexts.
        begun = time.perf_counter()
        add_to(folder / "go")
        # A process that fails never passes its turn on.
        first = {}
        until = time.monotonic() + options.timeout
        while time.monotonic() < until and len(first) < options.processes:
            for which, trainer in enumerate(trainers):
                code = trainer.process.poll()
                if code is not None:
                    first[which] = code
                    if code != 0:
                        until = 0
            time.sleep(0.01)
        ends = [trainer.end(1) for trainer in trainers]
        seconds = time.perf_counter() - begun
        if taker:
            taker.end()
    fine = all(code == 0 and stdout == like for (code, stdout, _), like in zip(ends, likes))
    codes = [code for code, _, _ in ends]
    print(f"{name}, {at_once} at a time, {left / MIB:.0f} MiB for all: {'ended, equal' if fine else 'FAILED or different'}, codes {codes}, "
          f"{seconds:.1f} s; {[said for _, _, said in ends]}", flush=True)
    return fine, any("OutOfMemoryError" in line for _, _, said in ends for line in said)


def main():
    options = arguments()
    if options.takes:
        return take(options)
    if options.trains is not None:
        return train(options)
    likes, allocated, outside = [], 0, 0
    for which in range(options.processes):
        with tempfile.TemporaryDirectory() as folder:
            code, stdout, said = Trainer(options, None, Path(folder), which).end(options.timeout)
        print(f"natively, alone: code {code}; {said}", flush=True)
        if code != 0:
            sys.exit(1)
        likes.append(stdout)
        figures = next((line.split() for line in said if line.startswith("reserved")), ["", "0", "0", "0"])
        allocated += int(figures[2])
        outside += int(figures[3])
    left = int(1.75 * options.tensor * MIB) if options.tensor else int(allocated / options.over)
    if options.ledger:
        left += outside
    print(f"sum of what is allocated at most: {allocated / MIB:.0f} MiB, contexts {outside / MIB:.0f} MiB")
    fine = True
    for at_once in options.at_once:
        (_, native_is_short), *ours = [together(options, name, at_once, left, likes) for name in (SHARED if options.ledger else WAYS)]
        fine = fine and native_is_short and all(ended for ended, _ in ours)
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Two processes on one GPU that need its memory in turn, on elastic segments (GPUSHIM_ELASTIC) and natively.

Each process trains a model in its turns, and keeps only the weights between them. A third one takes memory away until
what is left is the sum of what PyTorch allocates at most in both, divided by `--over`. Prints a line for each way; exit code 1
unless both processes end on elastic segments with the losses and weights of the native run on an empty GPU.

  python3 tests/gpu/torch_turns.py --library dist/libgpushim.so
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
    "elastic auto": {"GPUSHIM_ELASTIC": "auto"},
    "elastic on": {"GPUSHIM_ELASTIC": "on"},
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", help="libgpushim.so")
    parser.add_argument("--turns", type=int, default=4, help="of each process")
    parser.add_argument("--over", type=float, default=1.6)
    parser.add_argument("--timeout", type=int, default=100, help="seconds for one way")
    parser.add_argument("--trains", type=int, help="for the processes themselves: which turns are this one's, 0 or 1")
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
    """One of the two processes: prints losses, a digest of the weights, and what it reserved."""
    sys.path.insert(0, str(Path(__file__).parent))
    from common import deterministic_torch, tensor_digest

    torch = deterministic_torch()
    device, generator = torch.device("cuda"), torch.Generator().manual_seed(options.trains)
    torch.manual_seed(options.trains)
    wide = [layer for _ in range(16) for layer in (torch.nn.Linear(1024, 1024), torch.nn.GELU())]
    model = torch.nn.Sequential(*wide).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    turns, slow = options.folder / "turns", 0.0

    def step(rows):
        inputs = torch.full((rows, 1024), 0.5, device=device)
        loss = model(inputs).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.item()

    step(1024)
    add_to(options.folder / "ready")
    for turn in range(options.turns):
        if not options.alone:
            wait_for(turns, 2 * turn + options.trains)
            wait_for(options.folder / "go", 1)
        begun = time.perf_counter()
        for _ in range(4):
            rows = int(torch.randint(24, 65, (1,), generator=generator)) * 1024
            print("loss", turn, rows, step(rows))
        slow = max(slow, time.perf_counter() - begun)
        add_to(turns)
    print("weights", tensor_digest(torch.cat([p.reshape(-1) for p in model.parameters()])))
    print("reserved", torch.cuda.max_memory_reserved(), torch.cuda.max_memory_allocated(), round(slow, 3), file=sys.stderr)
    if not options.alone:
        wait_for(turns, 2 * options.turns)


def take(_):
    """Takes memory until only the bytes on the input are left, and keeps it until the input ends."""
    import torch

    left = int(sys.stdin.readline())
    free, _total = torch.cuda.mem_get_info()
    kept = torch.empty(max(0, free - left), dtype=torch.uint8, device="cuda")
    print("taken", kept.numel(), torch.cuda.mem_get_info()[0], flush=True)
    sys.stdin.read()


class Trainer:
    """One of the two processes."""

    def __init__(self, options, way, folder, which, more=()):
        environment = os.environ.copy()
        if way is not None:
            environment |= way | {"LD_PRELOAD": str(Path(options.library).resolve()), "GPUSHIM_POLICY": "off"}
            environment |= {"GPUSHIM_TRACE": str(folder / f"{which}.trace")}
        command = [sys.executable, __file__, "--trains", str(which), "--folder", folder, "--turns", str(options.turns), *more]
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


def together(options, name, left, likes):
    """Both processes beside the third one. Whether they ended with the native results."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        trainers = [Trainer(options, WAYS[name], folder, which) for which in (0, 1)]
        taker = subprocess.Popen([sys.executable, __file__, "--takes"], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        ready = folder / "ready"
        while not (ready.is_file() and ready.stat().st_size == 2):
            if any(trainer.process.poll() is not None for trainer in trainers):
                sys.exit(f"{name}: a process ended before its first turn: {[trainer.end(1) for trainer in trainers]}")
            time.sleep(0.01)
        taker.stdin.write(f"{left}\n")
        taker.stdin.flush()
        taken = taker.stdout.readline().split()
        begun = time.perf_counter()
        add_to(folder / "go")
        # A process that fails never passes its turn on.
        first = {}
        until = time.monotonic() + options.timeout
        while time.monotonic() < until and len(first) < 2:
            for which, trainer in enumerate(trainers):
                code = trainer.process.poll()
                if code is not None:
                    first[which] = code
                    if code != 0:
                        until = 0
            time.sleep(0.01)
        ends = [trainer.end(1) for trainer in trainers]
        seconds = time.perf_counter() - begun
        taker.communicate("")
    fine = all(code == 0 and stdout == like for (code, stdout, _), like in zip(ends, likes))
    codes = [code for code, _, _ in ends]
    left = int(taken[2]) / MIB if len(taken) == 3 else 0
    print(f"{name}, {left:.0f} MiB left for both: {'ended, equal' if fine else 'FAILED or different'}, codes {codes}, "
          f"{seconds:.1f} s; {[said for _, _, said in ends]}", flush=True)
    return fine


def main():
    options = arguments()
    if options.takes:
        return take(options)
    if options.trains is not None:
        return train(options)
    likes, allocated = [], 0
    for which in (0, 1):
        with tempfile.TemporaryDirectory() as folder:
            code, stdout, said = Trainer(options, None, Path(folder), which, ["--alone"]).end(options.timeout)
        print(f"natively, alone: code {code}; {said}", flush=True)
        if code != 0:
            sys.exit(1)
        likes.append(stdout)
        allocated += int(next((line.split()[2] for line in said if line.startswith("reserved")), "0"))
    results = {name: together(options, name, int(allocated / options.over), likes) for name in WAYS}
    print(f"sum of what is allocated at most: {allocated / MIB:.0f} MiB, {options.over} times what is left")
    sys.exit(0 if all(fine for name, fine in results.items() if name != "natively") and not results["natively"] else 1)


if __name__ == "__main__":
    main()

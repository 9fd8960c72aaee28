"""PyTorch under takeover for minutes on end: training, CUDA graphs made, replayed and dropped, threads and streams that
come and go, beside a second process that takes device memory and gives it back. A line of figures each minute, and at
the end the verdict of tests/soak/verdict.py.

    python3 tests/gpu/soak.py --minutes 10 [--every 60] [--dist dist]
    python3 tests/gpu/soak.py --self-test      the rules of the verdict, without a GPU

Exit code: 0 flat and right, 1 something grew or was wrong, 2 not run.
"""

import argparse
import ctypes
import gc
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tests" / "soak"))

import verdict

MIB = 1 << 20
# PyTorch takes its streams from two pools of 32, by priority; with them the default stream and the legacy one.
STREAMS = 2 * 32 + 2
FIGURES = ("live", "allocated", "cached", "reserved", "quarantined", "pools", "queues")


def stats():
    """The figures of the shim's pools in this process; zeros without the shim."""
    room = (ctypes.c_uint64 * len(FIGURES))()
    try:
        ask = ctypes.CDLL(None).gpushim_stats
    except AttributeError:
        return dict.fromkeys(FIGURES, 0)
    ask.argtypes, ask.restype = (ctypes.c_void_p, ctypes.c_size_t), ctypes.c_size_t
    ask(room, len(FIGURES))
    return dict(zip(FIGURES, room))


def status(name):
    """A figure of /proc/self/status, in KiB."""
    for line in pathlib.Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    return -1


class Work:
    """The process under the shim: what it does over and over, and whether the results are right."""

    def __init__(self):
        import torch

        self.torch, self.cuda, self.device = torch, torch.cuda, torch.device("cuda")
        self.operations = self.wrong = self.refused = self.graphs = self.turn = 0
        self.model = torch.nn.Sequential(
            torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 64)).to(self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.lock = threading.Lock()

    def expect(self, is_right):
        """Counts a result that is not what it must be."""
        if not is_right:
            with self.lock:
                self.wrong += 1

    def train(self):
        """A few steps, in sizes that differ."""
        for _ in range(8):
            self.turn += 1
            inputs = self.torch.randn(64 * (1 + self.turn * 7 % 23), 512, device=self.device)
            loss = self.model(inputs).square().mean()
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            self.operations += 1
        self.expect(self.torch.isfinite(loss).item())

    def graph(self):
        """A graph with memory of its own: captured, replayed among other tensors, dropped."""
        torch = self.torch
        inputs = torch.zeros(1 << 16, dtype=torch.int64, device=self.device)
        graph = self.cuda.CUDAGraph()
        self.cuda.synchronize()
        with self.cuda.graph(graph):
            middle = inputs * 3
            result = middle + 1
            del middle
        for replay in range(20):
            value = self.turn * 100 + replay
            inputs.fill_(value)
            others = [torch.full((1 << (12 + size % 8),), replay, device=self.device) for size in range(10)]
            graph.replay()
            self.expect(int(result.sum().item()) == (1 << 16) * (value * 3 + 1))
            self.expect(all(bool((other == replay).all().item()) for other in others))
            self.operations += 12
        self.cuda.synchronize()
        del result, inputs
        graph.reset()
        self.graphs += 1

    def visitor(self, number):
        """A thread that comes, works on a stream and goes."""
        torch = self.torch
        stream = self.cuda.Stream()
        with self.cuda.stream(stream):
            for step in range(20):
                block = torch.full(((number * 37 + step * 11) % 997 + 1, 1024), number + step, device=self.device, dtype=torch.int32)
                total = int(block.sum(dtype=torch.int64).item())
                self.expect(total == block.numel() * (number + step))
        with self.lock:
            self.operations += 20

    def threads(self):
        """Some of them at once."""
        visitors = [threading.Thread(target=self.visitor, args=(self.turn + number,)) for number in range(4)]
        for visitor in visitors:
            visitor.start()
        for visitor in visitors:
            visitor.join()

    def large(self):
        """What the other process may not leave room for: an honest error, and then on with it."""
        try:
            free, _ = self.cuda.mem_get_info()
            block = self.torch.full((max(free // 2, MIB),), 7, dtype=self.torch.uint8, device=self.device)
            self.expect(int(block[-1].item()) == 7)
            del block
        except self.cuda.OutOfMemoryError:
            self.refused += 1
        self.cuda.empty_cache()

    def rest(self):
        """Nothing but the model is left."""
        gc.collect()
        self.cuda.synchronize()
        self.cuda.empty_cache()
        # Longer than GPUSHIM_DECAY below.
        time.sleep(3)

    def figures(self, started, done, took):
        """One line of figures."""
        numbers = {
            "seconds": time.monotonic() - started, "rss": status("VmRSS"), "address_space": status("VmSize"),
            "descriptors": len(os.listdir("/proc/self/fd")), "threads": len(os.listdir("/proc/self/task")),
            **stats(), "rate": done / took, "wrong": self.wrong, "refused": self.refused, "streams_peak": STREAMS,
        }
        numbers["held"] = numbers["reserved"]
        print("figures", *[f"{name} {value:.0f}" for name, value in numbers.items()], flush=True)

    def run(self, minutes, every):
        """Until the time is over."""
        started = mark = time.monotonic()
        before = 0
        line = 1
        while time.monotonic() - started < minutes * 60:
            for step in (self.train, self.graph, self.threads, self.large):
                try:
                    step()
                except self.cuda.OutOfMemoryError:
                    self.refused += 1
            if time.monotonic() - started >= line * every:
                done, took = self.operations - before, time.monotonic() - mark
                self.rest()
                self.figures(started, done, took)
                before, mark = self.operations, time.monotonic()
                line = int((mark - started) / every) + 1
        backend = self.cuda.get_allocator_backend()
        print(f"end backend {backend} operations {self.operations} graphs {self.graphs} refused {self.refused} wrong {self.wrong}", flush=True)


def other():
    """The second process: takes much of the device's memory and gives it back, again and again."""
    import random

    import torch

    random.seed(1)
    while True:
        free, total = torch.cuda.mem_get_info()
        want = int(min(free * 0.8, total * random.uniform(0.1, 0.7)))
        try:
            block = torch.empty(max(want, MIB), dtype=torch.uint8, device="cuda").fill_(1)
            time.sleep(random.uniform(0.2, 2.0))
            del block
        except torch.cuda.OutOfMemoryError:
            pass
        torch.cuda.empty_cache()
        time.sleep(random.uniform(0.1, 1.0))


def soak(options):
    """Both processes, and the verdict on the first."""
    shim = pathlib.Path(options.dist, "libgpushim.so").resolve()
    if not shim.exists():
        print(f"soak: {shim} is missing: run scripts/dist", file=sys.stderr)
        return 2
    command = [sys.executable, os.path.abspath(__file__)]
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("GPUSHIM_", "PYTORCH_"))}
    with tempfile.TemporaryDirectory(prefix="gpushim-soak-") as folder:
        preloaded = plain | {
            "LD_PRELOAD": str(shim), "GPUSHIM_TAKEOVER": "torch", "GPUSHIM_DECAY": "1s", "GPUSHIM_TRACE": f"{folder}/%p.trace",
        }
        second = subprocess.Popen([*command, "--role", "other"], env=plain)
        lines, last = [], ""
        try:
            work = subprocess.Popen(
                [*command, "--role", "work", "--minutes", str(options.minutes), "--every", str(options.every)],
                env=preloaded, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            said = []
            errors = threading.Thread(target=lambda: said.extend(work.stderr))
            errors.start()
            for line in work.stdout:
                last = line.strip()
                if line.startswith("figures "):
                    lines.append(verdict.parse(line.removeprefix("figures ")))
                    print(f"{lines[-1]['seconds'] / 60:5.1f} min  {verdict.shown(lines[-1])}, {lines[-1]['refused']:.0f} refused", flush=True)
            code = work.wait()
            errors.join()
            is_other_alive = second.poll() is None
        finally:
            second.kill()
            second.wait()
    found = judged(lines, code, last, said, is_other_alive)
    print(f"{'FAIL' if found else 'ok'}  {'; '.join(found) or 'flat and right'}  ({last})")
    return 1 if found else 0


def judged(lines, code, last, said, is_other_alive):
    """What is wrong with a run: its lines of figures, its exit code, its last line and its standard error."""
    found = verdict.complaints(lines)
    if code != 0:
        found.append(f"exit code {code}: {' | '.join(line.strip() for line in said[-3:])}")
    if "backend cudaMallocAsync" not in last:
        found.append("the process was not taken over")
    ours = [line.strip() for line in said if line.startswith("gpushim: ")]
    if ours:
        found.append(f"the shim says: {ours[0]}")
    if not is_other_alive:
        found.append("the second process ended early")
    if lines and not lines[-1].get("pools"):
        found.append("no pool of ours in the process")
    return found


def self_test():
    """The verdict on made-up runs."""
    verdict.self_test()
    flat = {"rss": 1000, "address_space": 5000, "descriptors": 9, "threads": 6, "live": 5, "quarantined": 0, "held": 0,
            "queues": 20, "streams_peak": STREAMS, "pools": 1, "wrong": 0}
    last = "end backend cudaMallocAsync operations 5"
    assert judged([flat] * 4, 0, last, [], True) == []
    for lines, code, end, said, alive in (
        ([flat] * 4, 1, last, [], True), ([flat] * 4, 0, "end backend native", [], True),
        ([flat] * 4, 0, last, ["gpushim: internal error\n"], True), ([flat] * 4, 0, last, [], False),
        ([{**flat, "pools": 0, "queues": 0}] * 4, 0, last, [], True), ([flat] * 3 + [{**flat, "rss": 1100}], 0, last, [], True),
    ):
        assert len(judged(lines, code, end, said, alive)) == 1, (lines[-1], code, end, said, alive)
    assert verdict.parse("a 1")["a"] == 1 and status("VmRSS") > 0 and len(stats()) == len(FIGURES)
    print("soak: the verdict holds")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--every", type=float, default=60)
    parser.add_argument("--dist", default=str(ROOT / "dist"))
    parser.add_argument("--role", choices=["both", "work", "other"], default="both")
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        return self_test()
    if options.role == "work":
        Work().run(options.minutes, options.every)
        return 0
    if options.role == "other":
        other()
    return soak(options)


if __name__ == "__main__":
    sys.exit(main())

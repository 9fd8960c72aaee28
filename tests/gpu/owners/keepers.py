"""Programs in which something keeps tensors that grow with each step: python keepers.py CASE.

Each case keeps 2 MiB a step. The first line of its doc says by which name, as `gpushim growth` should: a part of the path.
"""

import asyncio
import collections
import dataclasses
import functools
import gc
import sys
import threading
import time

import torch

STEPS = 40
SIDE = 724  # of float32: 2.0 MiB


def fresh():
    return torch.randn(SIDE, SIDE, device="cuda")


def work():
    """Some milliseconds of a step, which leave nothing."""
    left = fresh()
    for _ in range(8):
        left = (left @ left).relu()
        left = left / left.norm()
    torch.cuda.synchronize()
    time.sleep(.08)
    return left


def class_attribute():
    """Registry.seen[*]"""
    class Registry:
        seen = []
    globals()["Registry"] = Registry
    for _ in range(STEPS):
        Registry.seen.append(work())


def closure():
    """collect.<closure kept>[*]"""
    def make():
        kept = []
        def collect(value):
            kept.append(value)
        return collect
    collect = make()
    for _ in range(STEPS):
        collect(work())


@functools.lru_cache(maxsize=None)
def table(step):
    return work()


def cached_function():
    """table.<cache>[*]"""
    for step in range(STEPS):
        table(step)


def exceptions():
    """failures[*]"""
    failures = []
    def fails():
        batch = work()
        raise ValueError(str(batch.shape))
    for _ in range(STEPS):
        try:
            fails()
        except ValueError as error:
            failures.append(error)


def generators():
    """open_streams[*]"""
    open_streams = []
    def stream():
        held = work()
        yield held.shape
        yield held
    for _ in range(STEPS):
        running = stream()
        next(running)
        open_streams.append(running)


def worker_thread():
    """history[*]"""
    def works():
        history = []
        for _ in range(STEPS):
            history.append(work())
    thread = threading.Thread(target=works)
    thread.start()
    while thread.is_alive():
        time.sleep(.01)


def joined_thread():
    """history[*]"""
    def works():
        history = []
        for _ in range(STEPS):
            history.append(work())
            [object() for _ in range(2000)]
    thread = threading.Thread(target=works)
    thread.start()
    thread.join()


def tasks():
    """<task>.holds().value"""
    async def holds(value, done):
        await done.wait()
        return value
    async def main():
        done = asyncio.Event()
        for _ in range(STEPS):
            asyncio.ensure_future(holds(work(), done))
            await asyncio.sleep(0)
        done.set()
        await asyncio.sleep(.1)
    asyncio.run(main())


@dataclasses.dataclass
class Sample:
    image: object
    label: int


@dataclasses.dataclass
class Buffer:
    samples: collections.deque = dataclasses.field(default_factory=collections.deque)


def dataclass():
    """buffer.samples[*].image"""
    buffer = Buffer()
    for step in range(STEPS):
        buffer.samples.append(Sample(work(), step))


def hooks():
    """activations['first'][*]"""
    model = torch.nn.Linear(SIDE, SIDE).cuda()
    activations = collections.defaultdict(list)
    model.register_forward_hook(lambda module, inputs, output: activations["first"].append(output.detach()))
    for _ in range(STEPS):
        with torch.no_grad():
            model(work())


def graphs():
    """losses[*]"""
    model = torch.nn.Sequential(torch.nn.Linear(SIDE, SIDE), torch.nn.Sigmoid(), torch.nn.Linear(SIDE, 8)).cuda()
    losses = []
    for _ in range(STEPS):
        losses.append(model(work()).mean())


def cycles():
    """unreachable"""
    gc.disable()
    class Request:
        pass
    for _ in range(STEPS):
        request = Request()
        request.self, request.output = request, work()


def nested_module():
    """trainer.model.memory.slots[*]"""
    class Memory(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.slots = []
        def forward(self, value):
            self.slots.append(value.detach())
            return value
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.memory = Memory()
        def forward(self, value):
            return self.memory(value)
    class Trainer:
        def __init__(self):
            self.model = Model()
    trainer = Trainer()
    for _ in range(STEPS):
        trainer.model(work())


CASES = (class_attribute, closure, cached_function, exceptions, generators, worker_thread, joined_thread, tasks, dataclass, hooks,
         graphs, cycles, nested_module)

if __name__ == "__main__":
    name = sys.argv[1]
    if name == "list":
        for case in CASES:
            print(case.__name__, case.__doc__, sep="\t")
    else:
        globals()[name]()

"""Objects per second of CPU time, by kind: python speed.py. The tensors are the stand-ins of fakes.py, whose storages are Python."""
import sys
import time

sys.dont_write_bytecode = True
from fakes import Tensor, frame, walk  # noqa: E402


class Record:
    def __init__(self, number):
        self.name, self.size, self.kids, self.meta = "x", number, [], {"a": number}


class Slots:
    __slots__ = ("a", "b")

    def __init__(self):
        self.a, self.b = [], 1


def measure(name, objects, wanted=None):
    best, frames = 1e9, [frame(objects=objects)]
    for _ in range(4):
        start = time.process_time()
        _, facts = walk(frames, wanted, 60)
        best = min(best, time.process_time() - start)
    print("%d.%d %-8s %7d objects %4.0f ms, %4.0f thousand a second" % (
        sys.version_info[0], sys.version_info[1], name, facts["objects"], best * 1e3, facts["objects"] / best / 1e3))


N = 100000
measure("nothing", [])
measure("lists", [[[] for _ in range(9)] for _ in range(N // 10)])
measure("dicts", [{"a": [], "b": i, "c": "x"} for i in range(N // 2)])
measure("objects", [Record(i) for i in range(N // 3)])
measure("slots", [Slots() for _ in range(N // 2)])
measure("mixed", [{"p": Record(i), "t": (Slots(), [i, i]), "x": [{"a": 1}, [2]]} for i in range(N // 11)])
measure("tensors", [Tensor() for _ in range(N)], [])

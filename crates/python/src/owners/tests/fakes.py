"""The program as the native side loads it, and stand-ins for torch. Nothing of torch is installed where these tests run."""
import datetime
import gc
import os
import sys
import types

FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def load():
    text = "".join(open(os.path.join(FOLDER, name)).read() for name in ("objects.py", "walk.py", "garbage.py", "entry.py"))
    space = {"__name__": "gpushim_owners"}
    exec(compile(text, "<gpushim owners>", "exec"), space)
    return space


MRO = type.__dict__["__mro__"].__get__


def is_module(value):
    return types.ModuleType in MRO(type(value))


def referents(value):
    """Not of modules: that of asyncio tells freed objects in 3.12, which would be freed again."""
    return [] if is_module(value) else gc.get_referents(value)


def collectable(get_objects, types, microseconds):
    """What the native side finds: the collector's rule, in Python."""
    if microseconds <= 0:
        return ()
    objects = get_objects()
    one = [[]]
    own = sys.getrefcount(one[0]) - 1  # but for the list
    places = {id(value): place for place, value in enumerate(objects)}
    counts = [sys.getrefcount(objects[place]) - own - 1 for place in range(len(objects))]
    for place in range(len(objects)):
        for part in [places.get(id(part)) for part in referents(objects[place])]:
            if part is not None:
                counts[part] -= 1
    held = [place for place, count in enumerate(counts) if count > 0]
    reached = set(held)
    while held:
        for part in [places.get(id(part)) for part in referents(objects[held.pop()])]:
            if part is not None and part not in reached:
                reached.add(part)
                held.append(part)
    return tuple([value for place, value in enumerate(objects) if place not in reached and type(value) in types])


PROGRAM = load()
walk = PROGRAM["walk"]


class Storage:
    def __init__(self, address, size):
        self.address, self.size = address, size
        if address is None:
            self.data_ptr = len  # raises, and has no frame, as the functions of torch

    def data_ptr(self):
        return self.address

    def nbytes(self):
        return self.size


class TensorBase:
    __slots__ = ("address", "size", "grad", "grad_fn", "is_leaf", "retains_grad", "__weakref__")

    def untyped_storage(self):
        return Storage(self.address, self.size)


class Tensor(TensorBase):
    last = 0

    def __init__(self, grad_fn=None, fake=False):
        Tensor.last += 512
        self.address, self.size = None if fake else Tensor.last, 512
        self.grad, self.grad_fn, self.is_leaf, self.retains_grad = None, grad_fn, grad_fn is None, False


class Node(datetime.timedelta):
    """A node, whose sequence number a method in C gives, as that of PyTorch does."""
    __slots__ = ("next_functions", "__weakref__")
    last = 0
    _sequence_nr = datetime.timedelta.total_seconds

    def __new__(cls, *following):
        Node.last += 1
        return datetime.timedelta.__new__(cls, 0, Node.last)

    def __init__(self, *following):
        self.next_functions = tuple((node, 0) for node in following)


class AccumulateGrad(Node):
    __slots__ = ("variable",)

    def __init__(self, variable):
        self.next_functions, self.variable = (), variable


class FunctionBase(Node):
    pass


class Guard:
    depth, entered = 0, 0

    def __enter__(self):
        Guard.depth += 1
        Guard.entered += 1

    def __exit__(self, *error):
        Guard.depth -= 1


def library(name, **names):
    module = types.ModuleType(name)
    module.__file__ = "/opt/python/site-packages/" + name.replace(".", "/") + ".py"
    module.__dict__.update(names)
    sys.modules[name] = module
    for value in names.values():
        if type(value) is type:
            value.__module__ = name
    return module


library("torch", Tensor=Tensor)
library("torch._C", TensorBase=TensorBase, _FunctionBase=FunctionBase, DisableTorchFunctionSubclass=Guard)


def frame(function="main", path="/home/someone/train.py", line=7, thread=1, **names):
    return (thread, function, path, line, names)


def owner(tensor, *frames, **more):
    """(path, root) of a tensor; (None, None) if none was found."""
    for address, size, path, root in walk(list(frames), None, 20, **more)[0]:
        if address == tensor.address:
            assert size == 512
            return path, root
    return None, None


def wanted(blocks):
    """What `walk` takes: the begins and the ends of blocks."""
    return [begin for begin, _ in blocks], [end for _, end in blocks]


def path(tensor, **names):
    return owner(tensor, frame(**names))[0]

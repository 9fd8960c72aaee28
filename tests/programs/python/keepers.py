"""Device memory that Python objects keep, and by which name: python keepers.py CASE.

Prints a line `ADDRESS KEPT PATH` for each block whose owner is known in advance. `torch` is a stand-in: a class with
the descriptors by which a tensor tells its storage.
"""

import ctypes
import gc
import operator
import os
import signal
import sys
import threading
import time
import types
import weakref

cuda = ctypes.CDLL("libcuda.so.1")
process = ctypes.PyDLL(None)


def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code != 0:
        raise MemoryError(f"{name} failed with {code}")


class Storage:
    def __init__(self, address, size):
        self.address, self.size = address, size

    def data_ptr(self):
        return self.address

    def nbytes(self):
        return self.size


class TensorBase:
    __slots__ = ("storage", "grad", "grad_fn", "is_leaf", "retains_grad", "__weakref__")
    # Without a frame of Python, as PyTorch's.
    untyped_storage = operator.attrgetter("storage")
    address = property(lambda self: self.storage.address)


class Tensor(TensorBase):
    def __init__(self, size=1 << 20, grad_fn=None):
        address = ctypes.c_uint64()
        call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        self.storage = Storage(address.value, size)
        self.grad, self.grad_fn, self.is_leaf, self.retains_grad = None, grad_fn, grad_fn is None, False

    def __del__(self):
        if hasattr(self, "storage"):
            cuda.cuMemFree_v2(ctypes.c_uint64(self.address))


class Node:
    __slots__ = ("next_functions", "__weakref__")

    def __init__(self, *following):
        self.next_functions = tuple((node, 0) for node in following)


def library(name, **names):
    module = types.ModuleType(name)
    module.__file__ = "/opt/site-packages/" + name.replace(".", "/") + ".py"
    module.__dict__.update(names)
    sys.modules[name] = module
    for value in names.values():
        value.__module__ = name


def expect(tensor, kept, path):
    print("%d\t%s\t%s" % (tensor.address, kept, path), flush=True)


class Session:
    turns = []

    def __init__(self):
        self.meta = {"output": None}


class Module:
    def __init__(self):
        self._parameters, self._buffers, self._modules = {"weight": Tensor()}, {}, {}


class Optimizer:
    def __init__(self, weight):
        self.state, self.param_groups = {weight: {"exp_avg": Tensor()}}, []


def ask():
    """The walk has been made when this returns."""
    process.gpushim_owners()
    for _ in range(1000):
        pass


def asked():
    session, model = Session(), Module()
    session.meta["output"] = [Tensor(), Tensor()]
    weight = model._parameters["weight"]
    weight.grad = Tensor()
    optimizer = Optimizer(weight)
    captured = Tensor()

    def inner():
        return captured

    def generator():
        held = Tensor()
        expect(held, "named", "running.generator().held")
        yield held.address

    running = generator()
    next(running)
    Session.turns.append(Tensor())
    for tensor in session.meta["output"]:
        expect(tensor, "named", "session.meta['output'][*]")
    tensor = None
    expect(weight, "parameter", "model.weight")
    expect(weight.grad, "gradient", "model.weight.grad")
    expect(optimizer.state[weight]["exp_avg"], "optimizer-state", "state of model.weight: exp_avg")
    expect(captured, "named", "captured")
    expect(Session.turns[0], "named", "Session.turns[*]")
    ask()
    return inner, running


def worker():
    ready, done = threading.Event(), threading.Event()

    def works():
        call("cuCtxSetCurrent", context)
        batch = {"input": Tensor()}
        expect(batch["input"], "named", "batch['input']")
        ready.set()
        done.wait()

    thread = threading.Thread(target=works)
    thread.start()
    ready.wait()
    ask()
    done.set()
    thread.join()


def joined():
    """The main thread waits in C: another one walks."""
    def works():
        call("cuCtxSetCurrent", context)
        history = [Tensor(), Tensor()]
        expect(history[0], "named", "history[*]")
        process.gpushim_owners()
        time.sleep(4)

    thread = threading.Thread(target=works)
    thread.start()
    thread.join()


def unowned():
    """What no name leads to: a graph's, garbage, and C's."""
    native = Tensor()
    expect(native, "graph", "losses[*]")
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(native))
    native = None
    gc.disable()
    cycle = Session()
    cycle.meta["self"], cycle.meta["kept"] = cycle, Tensor()
    expect(cycle.meta["kept"], "unreachable", "")
    cycle = None
    losses = [Tensor(grad_fn=Node(Node()))]
    expect(losses[0], "named", "losses[*]")
    ask()
    losses.clear()


def fails():
    batch = Tensor(2 << 20)
    expect(batch, "named", "batch")
    Tensor(1 << 50)


def shortage():
    fails()


def many():
    """Walk after walk, beside threads that change what is looked at, a busy collector, signals and children."""
    import random
    over = threading.Event()
    shared = {"list": [], "dict": {}}

    def changes(seed):
        chosen = random.Random(seed)
        while not over.is_set():
            shared["dict"][chosen.randrange(100)] = [Session(), {"deep": [Session()]}]
            shared["list"].append(Session())
            if len(shared["list"]) > 500:
                shared["list"].clear()
                shared["dict"].clear()
            if chosen.random() < 0.02:
                gc.collect()

    signal.signal(signal.SIGALRM, lambda number, frame: shared.update(seen=number))
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.013)
    threads = [threading.Thread(target=changes, args=(seed,)) for seed in range(2)]
    kept = [Tensor() for _ in range(20)]
    expect(kept[7], "named", "kept[*]")
    for thread in threads:
        thread.start()
    try:
        for number in range(int(os.environ.get("WALKS", "60"))):
            ask()
            if number % 500 == 250:
                child = os.fork()
                if child == 0:
                    os._exit(0)
                os.waitpid(child, 0)
    finally:
        over.set()
    for thread in threads:
        thread.join()
    signal.setitimer(signal.ITIMER_REAL, 0)


def traced():
    """A tracer does not see the walk."""
    seen = []

    def trace(frame, event, argument):
        seen.append(frame.f_code.co_filename)
        return trace

    kept = Tensor()
    if sys.version_info >= (3, 11):
        expect(kept, "named", "kept")
    sys.settrace(trace)
    ask()
    sys.settrace(None)
    assert not [name for name in seen if "gpushim" in name], seen


def interrupted():
    """An exception of a signal handler is the program's, whenever it comes."""
    many = [Session() for _ in range(200000)]
    kept = Tensor()
    count = 0

    def handle(number, frame):
        raise KeyError("handler")

    signal.signal(signal.SIGALRM, handle)
    for step in range(20):
        signal.setitimer(signal.ITIMER_REAL, 0.001 * step + 0.0005)
        try:
            ask()
            time.sleep(1)
        except KeyError:
            count += 1
    assert count == 20, count
    expect(kept, "named", "kept")
    del many
    ask()


def forked():
    kept = Tensor()
    expect(kept, "named", "kept")
    ask()
    child = os.fork()
    if child == 0:
        ask()
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0


def lifetimes():
    """What a walk has seen dies when it would have died."""
    gc.collect()
    gc.disable()

    def works():
        session = Session()
        session.meta["output"] = [Tensor(), Tensor()]
        expect(session.meta["output"][0], "named", "session.meta['output'][*]")
        ask()
        return [weakref.ref(tensor) for tensor in session.meta["output"]]

    for _ in range(3):
        assert not any(gone() for gone in works())
    assert gc.collect() == 0, gc.garbage


held = []


def end():
    held.append({"kept": Tensor()})
    expect(held[0]["kept"], "named", "held[*]['kept']")
    # The background thread has seen that there is an interpreter.
    time.sleep(0.5)


library("torch", Tensor=Tensor)
library("torch._C", TensorBase=TensorBase)
device, context = ctypes.c_int(), ctypes.c_void_p()
call("cuInit", 0)
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
call("cuCtxSetCurrent", context)
first = Tensor(4096)
if sys.argv[1] != "end":
    # Before owners can be asked for, the background thread must have found the interpreter.
    time.sleep(0.1)
globals()[sys.argv[1]]()

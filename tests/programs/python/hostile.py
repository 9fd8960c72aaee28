"""What an interpreter does to those who look at its frames: it collects, forks, ends, switches, interrupts.

    hostile.py CASE [LIBRARY]

Recorded lines are as cuda.py describes.
"""

import atexit
import ctypes
import gc
import os
import signal
import sys
import threading
import time

FOLDER = __file__.rsplit("/", 1)[0]
sys.path.insert(0, FOLDER)
import cuda

recorder = cuda.Recorder(1 << 20)
lock = threading.Lock()


def hit(number=0):
    with lock:
        recorder.hit(number)


def run_threads(count, work):
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Cycle:
    def __init__(self, number):
        self.me, self.number = self, number

    def __del__(self):
        if self.number % 50 == 0:
            recorder_of_thread().hit(self.number)


own = threading.local()
recorders = []
first_sizes = iter(range(1 << 24, 1 << 30, 1 << 16))


def recorder_of_thread():
    found = getattr(own, "recorder", None)
    if found is None:
        own.recorder = found = cuda.Recorder(next(first_sizes))
        recorders.append(found)
    return found


def generator(depth):
    if depth:
        yield from generator(depth - 1)
    else:
        yield recorder_of_thread().hit(depth)


def collector():
    """The collector runs at almost any allocation, in all threads, and finalizers allocate."""
    gc.set_threshold(3, 2, 2)

    def work(number):
        cuda.on_thread()
        for step in range(400):
            Cycle(step)
            list(generator(step % 13))
            code = compile(f"\n{step % 7 * chr(10)}def made{step}(f):\n    x = [f(0)]\nmade{step}(f)", f"made{step % 5}", "exec")
            exec(code, {"f": recorder_of_thread().hit})
            if step % 20 == number:
                gc.collect()

    run_threads(4, work)
    gc.set_threshold(700, 10, 10)


def threads():
    """Threads that come and go, each with few allocations, with the GIL and without."""
    stop = time.monotonic() + 2

    def work(number):
        cuda.on_thread()
        for step in range(number % 5):
            recorder_of_thread().hit(step)

    while time.monotonic() < stop:
        run_threads(20, work)


def forks():
    """Children of fork allocate, end as programs end, or not; the parent goes on."""

    def noise(stop):
        cuda.on_thread()
        while not stop.is_set():
            recorder_of_thread().hit(1)
            time.sleep(0.001)

    stop = threading.Event()
    thread = threading.Thread(target=noise, args=(stop,))
    thread.start()
    for number in range(20):
        hit(number)
        child = os.fork()
        if child == 0:
            address = cuda.ADDRESS()
            cuda.ALLOCATE[number % 2](cuda.REFERENCE(address), 4096)
            if number % 2:
                os._exit(0)
            signal.alarm(20)
            sys.exit(0)
        _, status = os.waitpid(child, 0)
        assert status == 0, status
        hit(number)
    stop.set()
    thread.join()


def signals():
    """A timer interrupts computations, and allocates there."""
    in_hand = []

    def handler(_number, _frame):
        if not in_hand:
            in_hand.append(1)
            recorder.hit(len(recorder.lines))
            in_hand.pop()

    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    stop = time.monotonic() + 2
    while time.monotonic() < stop:
        sorted(range(3000), key=lambda n: -n)
        [list(generator(n)) for n in range(6)]
    signal.setitimer(signal.ITIMER_REAL, 0)


def subinterpreters():
    """Code in other interpreters of the process, called by this one."""
    source = f"""
import sys
sys.path.insert(0, {FOLDER!r})
import cuda
recorder = cuda.Recorder(SIZE)

def inside(depth):
    if depth:
        [inside(depth - 1) for _ in range(1)]
    else:
        recorder.hit(0)
        recorder.hit(1)

inside(3)
recorder.flush()
"""
    try:
        import _interpreters as module
    except ImportError:
        import _xxsubinterpreters as module
    for number in range(5):
        hit(number)
        try:
            made = module.create("legacy") if sys.version_info >= (3, 13) else module.create(isolated=False)
        except TypeError:
            made = module.create()
        run = getattr(module, "run_string")
        failed = run(made, source.replace("SIZE", str((64 + number) << 20)))
        if failed:
            print("#", "failed", failed)
        module.destroy(made)
        hit(number)


class AtEnd:
    """Its end is the end of the module, when much is gone."""

    def __init__(self):
        self.parts = cuda.ALLOCATE, cuda.ADDRESS, cuda.REFERENCE

    def __del__(self):
        (with_gil, without_gil), address, reference = self.parts
        for _ in range(10):
            with_gil(reference(address()), 4096)
            without_gil(reference(address()), 4096)


def ending():
    """Allocations in exit handlers, in finalizers at the end, and in daemon threads that are not waited for: some go on in
    C without the GIL until the process is gone, others return to Python each time.

    Threads that return to Python after the interpreter's end crash CPython 3.10 by themselves: of 300 runs without any
    shim, but with an exit handler that takes 20 ms, 87 did, in `take_gil`. There are none of these under 3.10.
    """
    for_ever = ctypes.CDLL(sys.argv[2]).allocate_for_ever
    returns_to_python = sys.version_info[:2] != (3, 10)

    def forever(number):
        cuda.on_thread()
        which = number // 2 % 2
        allocate, free, address = cuda.ALLOCATE[which], cuda.FREE[which], cuda.ADDRESS()
        reference = cuda.REFERENCE(address)

        def deep(depth):
            if depth:
                return deep(depth - 1)
            if number % 2 == 0:
                for_ever(cuda.WITHOUT_GIL.cuMemAlloc_v2, cuda.WITHOUT_GIL.cuMemFree_v2)
            while returns_to_python:
                allocate(reference, 4096)
                free(address)

        deep(number * 5)

    for number in range(4):
        threading.Thread(target=forever, args=(number,), daemon=True).start()
    atexit.register(lambda: (recorder.hit(0), recorder.flush()))
    global at_end
    at_end = [AtEnd()]
    at_end.append(at_end)
    sys.modules["at_end"] = AtEnd()
    time.sleep(0.2)


cuda.start()
globals()[sys.argv[1]]()
for each in [recorder] + recorders:
    each.flush()

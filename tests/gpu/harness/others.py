"""Section `others`: JAX and CuPy over their stream-ordered allocators, and our exported functions as
PyTorch's pluggable allocator."""

import sys

from . import survey
from .basics import first_difference
from .configurations import NATIVE, PLAIN, Configuration, missing, said
from .jobs import together
from .session import GPU

SHARE = {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.15"}
JAX_THEIRS = Configuration("cuda_async", SHARE | {"XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async"})
JAX_OURS = Configuration("ours", SHARE | {"GPUSHIM_TAKEOVER": "jax"}, True)


def run(session, built):
    """All of them at once."""
    def python(program, *more):
        return [sys.executable, GPU / program, *more]

    library = ["--library", session.shim]
    together(session, "others", {
        "JAX": lambda: streams(session, "JAX, cuda_async", python("jax_basic.py", "--steps", "30"), JAX_THEIRS, JAX_OURS, 1),
        "CuPy": lambda: streams(session, "CuPy, malloc_async", python("cupy_async.py"), NATIVE, PLAIN, 2),
        "pluggable, preloaded": lambda: pluggable(session, "preloaded", python("torch_pluggable.py"), library, PLAIN),
        "pluggable, not preloaded": lambda: pluggable(session, "not preloaded", python("torch_pluggable.py"), library, NATIVE),
    })


def streams(session, name, argv, theirs, ours, least):
    """Same output natively and over ours, and in the trace so many streams that are not the default one."""
    natively = theirs.run(session, name, argv, timeout=120)
    shimmed = ours.run(session, name, argv, timeout=120)
    if missing(session, "others", name, [(theirs.name, natively), (ours.name, shimmed)]):
        return
    seen = survey.read(session, shimmed)
    named = [stream for stream in seen.streams if stream > 2]
    forwarded = seen.flags["forwarded"]
    count = seen.allocations["pool-async"]
    problems = list(seen.errors)
    if natively.stdout != shimmed.stdout:
        problems.append("output differs: " + first_difference(natively.stdout, shimmed.stdout))
    # A few may be left to the driver: those of a stream that captures.
    if count == 0 or forwarded * 10 > count:
        problems.append(f"{count} stream-ordered allocations, {forwarded} of them left to the driver")
    if len(named) < least:
        problems.append(f"seen on streams {list(map(hex, seen.streams))}")
    if said(shimmed):
        problems.append(f"shim says: {said(shimmed)[0][:120]}")
    detail = f"{count} allocations on {len(named)} streams of its own; {dict(seen.flags)}; {natively.seconds:.1f} s -> {shimmed.seconds:.1f} s"
    session.result("others", name, "FAIL" if problems else "PASS", "; ".join([*problems, detail]), **seen.brief())


def pluggable(session, name, argv, library, configuration):
    """The losses of PyTorch's own allocator, from ours behind its pluggable one."""
    name = f"CUDAPluggableAllocator, {name}"
    natively = NATIVE.run(session, name, argv, timeout=90)
    # Where the library is only loaded by PyTorch, the trace is named all the same.
    folder = session.folder()
    env = {"GPUSHIM_TRACE": str(folder / "%p.trace")}
    ours = configuration.run(session, f"{name}, library", [*argv, *library], env=env, timeout=90)
    if missing(session, "others", name, [("native", natively), ("ours", ours)]):
        return
    ours.traces = sorted(folder.glob("*.trace"))
    seen = survey.read(session, ours)
    problems = [] if natively.stdout == ours.stdout else ["output differs: " + first_difference(natively.stdout, ours.stdout)]
    count = seen.allocations["pool-async"]
    if "weights" not in ours.stdout:
        problems.append("it did not come to its end")
    if count == 0:
        problems.append("no stream-ordered allocation in the trace")
    detail = f"{len(ours.stdout.splitlines())} lines; {count} allocations on {len(seen.streams)} streams; {dict(seen.flags)}"
    session.result("others", name, "FAIL" if problems else "PASS", "; ".join([*problems, detail]), **seen.brief())

"""Section `basics`: each program natively and under the shim: same output, same exit code, and in
the trace exactly what the counter saw the program ask of the driver."""

import difflib
import os
import sys
from concurrent.futures import ThreadPoolExecutor

from . import traces
from .session import GPU

PYTHON = [
    # name, program, environment, limit in seconds
    ("torch_compile", "torch_compile.py", {}, 200),
    ("torch_basic", "torch_basic.py", {}, 120),
    ("torch_basic nocache", "torch_basic.py", {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, 120),
    ("torch_graph", "torch_graph.py", {}, 120),
    ("torch_dataloader", "torch_dataloader.py", {}, 120),
    ("jax default", "jax_basic.py", {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.15"}, 150),
    ("jax platform", "jax_basic.py", {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}, 150),
    ("triton_add", "triton_add.py", {}, 120),
    ("cupy_basic", "cupy_basic.py", {}, 120),
    ("numba_basic", "numba_basic.py", {}, 120),
]
NATIVE = ["alloc_static_static", "alloc_static_shared", "stress_static", "stress_shared", "ipc_static", "ipc_shared"]


def first_difference(native, shimmed):
    """The first lines in which two outputs differ."""
    lines = difflib.unified_diff(native.splitlines(), shimmed.splitlines(), "native", "shim", lineterm="", n=0)
    return " / ".join(list(lines)[2:8])[:300]


def compare(session, name, argv, *, env=None, timeout=120, figures=False, section="basics", needed=""):
    """Runs a program counted and shimmed; adds its line of the table. `needed` must stand in its output."""
    env = dict(env or {})

    def own_caches():
        # Compilers' caches: each run compiles for itself, as on a user's first day.
        folder = session.folder()
        return env | {
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"), "TRITON_CACHE_DIR": str(folder / "triton"),
            "CUPY_CACHE_DIR": str(folder / "cupy"), "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
        }

    native = session.run(name, argv, count=True, env=own_caches(), timeout=timeout, figures=figures)
    if native.skipped:
        return session.result(section, name, "SKIP", "no time left")
    if not native.ok:
        # The counter may be at fault; a bare run tells.
        native = session.run(name, argv, env=own_caches(), timeout=timeout, figures=figures)
    shimmed = session.run(name, argv, shim=True, env=own_caches(), timeout=timeout, figures=figures)
    if native.skipped or shimmed.skipped:
        return session.result(section, name, "SKIP", "no time left")
    story = traces.read(session, shimmed)
    problems, notes = [], []
    if native.code != shimmed.code or shimmed.timed_out:
        problems.append(f"exit code {shimmed.code}{' (timed out)' if shimmed.timed_out else ''}, natively {native.code}")
    if native.stdout != shimmed.stdout:
        problems.append("output differs: " + first_difference(native.stdout, shimmed.stdout))
    if needed not in shimmed.stdout:
        problems.append(f"no line '{needed}'")
    if not native.ok:
        problems.append(f"the program fails natively too (code {native.code})")
    if not shimmed.traces:
        problems.append("no trace file")
    elif native.counts:
        differences, agreed = traces.compare_counts(story, native.counts)
        if differences:
            problems.append(differences)
        notes.append(agreed)
    else:
        notes.append("not counted natively")
    said = [line for line in shimmed.stderr.splitlines() if line.startswith("gpushim")]
    if said:
        notes.append(f"shim says: {said[0][:120]}")
    tensors = shimmed.figures.get("tensor_allocs")
    if tensors:
        if story.tensor_allocations != tensors:
            problems.append(f"tensors: PyTorch made {tensors}, traced {story.tensor_allocations}")
        else:
            notes.append(f"{tensors} tensors")
        if story.peak_tensors != shimmed.figures["max_memory_allocated"]:
            problems.append(f"tensor peak {story.peak_tensors}, PyTorch's {shimmed.figures['max_memory_allocated']}")
    notes.append(f"{native.seconds:.1f} s -> {shimmed.seconds:.1f} s")
    return session.result(
        section, name, "FAIL" if problems else "PASS", "; ".join(problems + [n for n in notes if n]),
        trace=story.brief(), counts=native.counts, stdout_lines=len(native.stdout.splitlines()),
    )


def run(session, built):
    """The native programs one by one (they read free memory), then the Python ones four at a time."""
    for name in NATIVE:
        if name in built:
            compare(session, name, [session.work / name], timeout=40)
    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        jobs = [
            (name, pool.submit(compare, session, name, [sys.executable, GPU / program], env=env, timeout=limit,
                               figures=program.startswith("torch_")))
            for name, program, env, limit in PYTHON
        ]
        for name, job in jobs:
            try:
                job.result()
            except Exception as error:  # One program's trouble must not cost the others.
                session.result("basics", name, "FAIL", f"gpu-check itself: {type(error).__name__}: {error}"[:300])
    process_without_cuda(session)


def process_without_cuda(session):
    """A program that never touches CUDA: same output, nothing on stderr, no file, little time."""
    argv = ["/bin/ls", "/"]
    native = [session.run("ls", argv, timeout=10) for _ in range(15)]
    shimmed = [session.run("ls", argv, shim=True, timeout=10) for _ in range(15)]
    if any(outcome.skipped for outcome in native + shimmed):
        session.result("basics", "ls", "SKIP", "no time left")
        return
    added = (min(o.seconds for o in shimmed) - min(o.seconds for o in native)) * 1e3
    quiet = all(not o.stderr and not o.traces and o.ok and o.stdout == native[0].stdout for o in shimmed)
    detail = f"{added:.2f} ms added{'' if quiet else ', and it left output or files'}"
    session.result("basics", "ls", "PASS" if quiet and added < 1.0 else "FAIL", detail, added_ms=added)

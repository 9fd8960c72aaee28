"""`scripts/gpu-check --self-test`: the sections run on made-up results, so that no mistake in the harness
costs time on a GPU; and every command line they form is tried on the programs' own parsers."""

import contextlib
import dataclasses
import io
import json
import pathlib
import subprocess
import sys
import tempfile
from collections import Counter

from . import configurations, machine, made_up, sanitizer, shortages, situations, survey, takeover, traces
from .session import GPU, Outcome, Session

MIB = 1 << 20


class Scripted(Session):
    """A session in which nothing runs: each program's outcome is made up."""

    def __init__(self, out, outcome):
        super().__init__(out, 10_000, out)
        self.outcome, self.asked = outcome, []

    def run(self, name, argv, *, shim=False, count=False, env=None, timeout=120, figures=False):
        argv = [str(part) for part in argv]
        # A run is refused by the real session when little time is left, so the clock is asked here, too.
        assert timeout > 0 and self.left() > 0, name
        self.asked.append(argv + (["--json", "figures.json"] if figures else []))
        return self.outcome(argv, shim, env or {})


def program_of(argv):
    """The file name of the program in a command line."""
    names = [pathlib.Path(part).name for part in argv]
    own = [name for name in names if (GPU / name).exists() and "." in name]
    return own[0] if own else names[0]


ENDS = """weights 1 abc
reduce-overhead weights abc
history frames True
wrong 0
refused 0
done abc
ERROR SUMMARY: 0 errors
"""
"""The lines that show that a program came to its end."""


def good(argv, shim, env):
    """What a run leaves when all is as it should be."""
    program = program_of(argv)
    if any("situations" in pathlib.Path(part).parts for part in argv):
        return made_up.situation(argv)
    if program == "shortage.py":
        return made_up.shortage(argv, shim, env)
    if program == "torch_dying_rank.py":
        return made_up.dying_rank()
    ours = "GPUSHIM_TAKEOVER" in env
    stdout, figures = "loss 0 0x1p+0\n" * 10 + ENDS, {
        "median_step_ms": 50.0, "steps_ms": [50.0] * 40, "max_memory_allocated": 1000 * MIB, "backend": "cudaMallocAsync" if ours else "native",
        "max_memory_reserved": (1010 if ours else 1500) * MIB, "reserved_before": 2048 * MIB, "reserved_after": 192 * MIB,
    }
    if program == "torch_fill.py":
        stdout = json.dumps({"backend": "", "tensors": 9, "bytes": 9, "first_s": 1.0, "again_s": 0.5, "reserved": 9 * MIB})
    elif program == "torch_pair.py":
        stdout = json.dumps({f"live_{live}_{key}": 400.0 for live in (1, 100, 1000, 10000) for key in ("p50", "p99", "mean")})
    elif program == "async_pair":
        times = {kind + key: ns for kind in ("", "same_") for key, ns in (("p50", 100.0), ("p99", 500.0), ("mean", 90.0))}
        crowd = [{"threads": threads, "mean": 100.0, "same_mean": 90.0, "deep_mean": 95.0} for threads in (1, 8)] if "--threads" in argv else []
        some = [{"live": live, **times} for live in (1, 100, 1000, 10000)]
        stdout = "\n".join(map(json.dumps, crowd or some))
    elif program == "torch_conf.py":
        stdout = json.dumps(allocator(shim, env))
    elif program == "torch_takeover.py":
        stdout = "backend cudaMallocAsync\nafter training 1 1 True True\n"
    elif program == "torch_ipc.py":
        refusing = ours
        stdout = f"wrong 0\nrefused {12 if refusing else 0}\nother process 0\n"
        if refusing:
            return Outcome(0, stdout, "gpushim: IPC is not possible\nrefused: RuntimeError: no\n", 1.0)
    elif program == "torch_all_reduce.py":
        stdout = f"wrong 0\nrefused {0 if shim or configurations.CONF not in env else 2}\n"
    elif program in ("torch_peers.py", "ipc_paged.py"):
        stdout = "wrong 0\n"
    elif program == "torch_turns.py":
        stdout = "natively, alone\n" * 2 + "elastic auto: ended, equal\nelastic on: ended, equal\n"
    elif program == "async_stress":
        broken = "--broken" in argv
        return Outcome(1 if broken else 0, "mismatches\n" if broken else "no mismatches\n", "made 9 freed 9\n", 1.0)
    return Outcome(0, stdout, "", 1.0, figures=figures, traces=["made-up.trace"] if shim else [])


def allocator(shim, env):
    """What torch_conf.py prints when the rules of the takeover hold."""
    key = configurations.CONF if configurations.CONF in env else takeover.PLAIN_CONF
    seen = {"cuda": env.get(configurations.CONF, ""), "plain": env.get(takeover.PLAIN_CONF, ""), "works": True}
    given = env.get(key, "")
    if "GPUSHIM_TAKEOVER" in env and "backend:" not in given:
        seen["cuda"] = f"{given},{takeover.ASYNC}" if given else takeover.ASYNC
    return seen | {"backend": "cudaMallocAsync" if takeover.ASYNC in f"{seen}" else "native"}


SCRIPTS = {
    # name -> what a run leaves, the statuses that must not come of it
    "good": (good, {"FAIL", "SKIP"}),
    "crashed": (lambda *_: Outcome(-11, "", "Traceback\nRuntimeError: made up", 1.0), {"PASS", "SKIP"}),
    "silent": (lambda *_: Outcome(1, "", "", 1.0), {"PASS", "SKIP"}),
    "out of time": (lambda *_: Outcome(-1, "", "no time left", 0.0, skipped=True), {"PASS"}),
    "hung": (lambda *_: Outcome(-9, "loss 0", "", 99.0, timed_out=True), {"PASS", "SKIP"}),
    "gibberish": (lambda *_: Outcome(0, "gib\nberish", "gpushim: what\n", 1.0, traces=["x"]), {"PASS", "SKIP"}),
}
ONLY = {
    "situations": {"mistaken": (made_up.mistaken, {"PASS", "SKIP"})},
    "shortages": {
        "mistaken": (made_up.another_shortage, {"PASS", "SKIP"}),
        "advised in vain": (lambda *run: dataclasses.replace(made_up.shortage(*run), stdout="ran out"), {"PASS", "SKIP"}),
    },
    "tune": {"mistaken": (lambda *run: dataclasses.replace(good(*run), traces=["mistaken.trace"]), {"PASS", "SKIP"})},
}
"""More scripts of one section."""
LOGIC = ("situations", "shortages", "autopsies", "workloads", "fill", "pair", "takeover", "plain", "elastic", "others", "tune", "two", "sanitizer")
"""Sections whose runs all go through the session, so that they can be played."""
SHOWN_ANYWAY = {"an order left out is seen", "the trace says so", "tensors in the trace"}
"""Checks that a crash fulfils, and those that rest on the made-up survey alone."""


def seen(*_):
    """A survey of a run in which all is well."""
    return survey.Survey(
        marks=2, events=2000, allocations=Counter({"pool-async": 900}), streams=Counter({0: 5, 0x111: 5, 0x222: 5, 0x333: 5}),
        flags=Counter({"hit": 900}), facts=[("takeover.torch", "backend:cudaMallocAsync")],
    )


def play(sections, name, script, trouble):
    """Runs one section on made-up outcomes; what is wrong goes to `trouble`."""
    outcome, unwanted = (SCRIPTS | ONLY.get(name, {}))[script]
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        session = Scripted(folder, outcome)
        session.begin(1000)
        built = {"libcounter.so", "async_pair", "async_small", "async_stress", "alloc_static_shared", "stress_shared"}
        try:
            more = {"count": 2} if name == "two" else {}
            sections[name](session, built, **more)
        except Exception as error:
            trouble.append(f"{name}, {script}: {type(error).__name__}: {error}")
        for row in session.results:
            # A played session runs from within; what gpu-check says of itself is never wanted.
            itself = "gpu-check itself" in row["detail"]
            if itself or (row["status"] in unwanted and row["name"] not in SHOWN_ANYWAY):
                trouble.append(f"{name}, {script}: {row['status']} {row['name']}: {row['detail']}")
        if not session.results:
            trouble.append(f"{name}, {script}: no line at all")
        session.log_file.close()
        return session.asked


def parsers(asked, trouble):
    """Every command line for a Python program of ours must be understood by it; 2 is argparse's refusal."""
    lines = {tuple(argv) for argv in asked if argv[0] == sys.executable}
    with tempfile.TemporaryDirectory() as folder:
        jobs = [
            (argv, subprocess.Popen(argv, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                    env={"CUDA_VISIBLE_DEVICES": "", "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}))
            for argv in sorted(lines)
        ]
        for argv, job in jobs:
            _, stderr = job.communicate(timeout=120)
            if job.returncode == 2:
                trouble.append(f"{' '.join(argv)}: {stderr.decode()[-200:]}")
    return len(lines)


@contextlib.contextmanager
def nothing():
    """In place of NVML."""
    yield type("Watch", (), {"peak": 0})()


def run(sections):
    """All sections on all scripts; 0 if the harness holds."""
    survey.read, machine.DeviceMemory = seen, nothing
    traces.read = lambda *_: traces.Story(files=1)
    sanitizer.shutil = type("Which", (), {"which": staticmethod(lambda name: f"/made-up/{name}")})
    situations.gpushim = made_up.gpushim
    trouble, asked = [], []
    for name in LOGIC:
        for script in SCRIPTS | ONLY.get(name, {}):
            asked += play(sections, name, script, trouble)
    lines = parsers(asked, trouble)
    print("\n".join(trouble) or f"{len(LOGIC)} sections on {len(SCRIPTS)} scripts, {lines} command lines: the harness holds")
    return 1 if trouble else 0

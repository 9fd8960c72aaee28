"""Section `owners`: who keeps what (tests/gpu/owners): the keeper of what grows, by name, and a training's parameters, gradients and
optimizer state against PyTorch's own count; and what the walks take."""

import json
import os
import subprocess

from .jobs import together
from .session import GPU

FOLDER = GPU / "owners"
AT_A_TIME = 4
SECONDS = 110
MODELS = ("gpt2", "resnet50", "lightning", "compiled")
STEPS = {"lightning": 400}
LIFETIMES = ("gpt2", "lightning")
KINDS = ("parameters", "gradients", "optimizer-state")
KEPT = {"parameters": "parameter", "gradients": "gradient", "optimizer-state": "optimizer-state", "buffers": "buffer"}
ROUNDING = 1 << 20
"""Bytes by which a block may be larger than what is in it: PyTorch leaves a rest of up to 1 MiB in a large block."""
AT = {"lightning": []}
"""The moment at which all is there: the end, but for Lightning, which then moves its module to the host."""
UNKNOWN = .05
SHARE, ALWAYS, AT_END = .01, .25, .3
"""Of a run, and seconds that a run of any length may spend on walks, and before its end."""


def cases():
    """The cases of keepers.py, each with the path that it expects."""
    listed = subprocess.run(["python3", str(FOLDER / "keepers.py"), "list"], capture_output=True, text=True, timeout=SECONDS)
    return [line.split("\t") for line in listed.stdout.splitlines()]


def recorded(session, name, *line, owners="auto"):
    """The output and the trace of a program under `gpushim run`."""
    trace = session.folder() / f"{name}.trace"
    argv = [str(session.command), "run", "--no-pack", "--trace", str(trace), "python3", *line]
    plain = {key: value for key, value in os.environ.items() if not key.startswith("GPUSHIM_")}
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS, env={**plain, "GPUSHIM_OWNERS": owners})
    if ran.returncode:
        raise RuntimeError(f"exit code {ran.returncode}: {ran.stderr[-200:]}")
    return ran.stdout, trace


def asked(session, name, trace, *more):
    said = subprocess.run([str(session.command), name, "--format", "json", *more, str(trace)], capture_output=True, text=True, timeout=SECONDS)
    return json.loads(said.stdout)["results"][0]


def walks(session, trace):
    """Seconds of all walks but the last one before the end, of that, and of the run; and how many there were."""
    listed = subprocess.run([str(session.command), "events", "--kind", "owners-walk", "--format", "json", str(trace)],
                            capture_output=True, text=True, timeout=SECONDS)
    found = [json.JSONDecoder().raw_decode(line)[0] for line in listed.stdout.splitlines() if '"owners-walk"' in line]
    early = sum(walk["took_ns"] for walk in found if walk["occasion"] != "end") / 1e9
    late = sum(walk["took_ns"] for walk in found if walk["occasion"] == "end") / 1e9
    last = max([walk["ns"] for walk in found], default=0) / 1e9
    return early, late, last, found


def keeper(session, name, expected):
    _, trace = recorded(session, name, str(FOLDER / "keepers.py"), name)
    keepers = asked(session, "growth", trace)["keepers"]
    kept = keepers[0].get("kept_by") if keepers else None
    early, late, last, found = walks(session, trace)
    told = f"{len(found)} walks, {early * 1e3:.0f} ms and {late * 1e3:.0f} ms at the end, of {last:.1f} s"
    if kept is None:
        session.result("owners", name, "FAIL", f"no owner of {len(keepers)} keepers; expected {expected}; {told}")
        return
    path = kept["path"] or kept["kept"]
    status = "PASS" if expected in path or expected == kept["kept"] else "FAIL"
    session.result("owners", name, status, f"{path} of {kept['root']} ({kept['kept']}); expected {expected}; {told}")


def counted(lines):
    """What a model's program counted."""
    return json.loads(next(line for line in lines.splitlines() if line.startswith("{")))


def lifetimes(session, kind):
    """Allocated bytes after each step, with walks and without."""
    program = (str(FOLDER / "models.py"), kind, str(STEPS.get(kind, 150)))
    with_walks, trace = recorded(session, f"{kind}-walked", *program)
    without, _ = recorded(session, f"{kind}-unwalked", *program, owners="off")
    seen, expected = (counted(lines)["allocated"] for lines in (with_walks, without))
    count = len(walks(session, trace)[3])
    differ = [index for index, pair in enumerate(zip(seen, expected)) if pair[0] != pair[1]]
    well = count and expected and len(seen) == len(expected) and not differ
    session.result("owners", f"lifetimes {kind}", "PASS" if well else "FAIL",
                   f"{len(expected)} steps, {len(differ)} differ{f', first {differ[0]}' if differ else ''}; {count} walks")


def model(session, kind):
    lines, trace = recorded(session, kind, str(FOLDER / "models.py"), kind, str(STEPS.get(kind, 150)))
    truth = counted(lines)
    wrong = []
    owners = asked(session, "peak", trace, *AT.get(kind, ["--at", "end"]))["owners"]
    for what in KINDS:
        rows = [row for row in owners if row["kept"] == KEPT[what]]
        found, blocks = sum(row["bytes"] for row in rows), sum(row["blocks"] for row in rows)
        if not truth[what] <= found <= truth[what] + blocks * ROUNDING:
            wrong.append(f"{what} {found} of {truth[what]}")
    peak = asked(session, "peak", trace)
    unknown = sum(part["bytes"] for part in peak["composition"] if part["category"] == "unknown") / peak["bytes"]
    if unknown > UNKNOWN:
        wrong.append(f"unknown {unknown:.1%} of the peak")
    early, late, last, found = walks(session, trace)
    if early > max(SHARE * last, ALWAYS) * 1.5 or late > AT_END * 1.5:
        wrong.append("walks too long")
    per = max([walk["took_ns"] / max(walk["number"], 1) / 1e3 for walk in found if walk["number"] > 1000], default=0)
    session.result("owners", kind, "FAIL" if wrong else "PASS", f"{'; '.join(wrong)} unknown {unknown:.1%}, {len(found)} walks, {early * 1e3:.0f} ms "
                   f"and {late * 1e3:.0f} ms at the end, of {last:.1f} s; at most {per:.1f} µs an object of those with 1,000 and more")


def run(session, built):
    del built
    checks = {f"model {kind}": lambda kind=kind: model(session, kind) for kind in MODELS}
    for kind in LIFETIMES:
        checks[f"lifetimes {kind}"] = lambda kind=kind: lifetimes(session, kind)
    for name, expected in cases():
        checks[name] = lambda name=name, expected=expected: keeper(session, name, expected)
    together(session, "owners", checks, AT_A_TIME)

"""Section `takeover`: PyTorch moved onto our pools by one variable, beside its own backend of that name
over the driver's pool, and beside its native allocator where results must be equal to the bit."""

import sys

from . import survey
from .basics import first_difference
from .configurations import CONF, DRIVER, NATIVE, OURS, PLAIN, Configuration, missing, printed, said
from .jobs import together
from .session import GPU

ASYNC, KEPT = "backend:cudaMallocAsync", "max_split_size_mb:100"
PLAIN_CONF = "PYTORCH_ALLOC_CONF"
RULES = {
    # name -> environment, backend, what must still stand in the variables, whether ours must be there
    "nothing set": ({}, "cudaMallocAsync", [], True),
    "an option in the old variable": ({CONF: KEPT}, "cudaMallocAsync", [KEPT], True),
    "an option in the new variable": ({PLAIN_CONF: KEPT}, "cudaMallocAsync", [KEPT], True),
    "expandable segments": ({CONF: "expandable_segments:True"}, "cudaMallocAsync", ["expandable_segments:True"], True),
    "options in both": ({CONF: KEPT, PLAIN_CONF: "expandable_segments:True"}, "cudaMallocAsync", [KEPT], True),
    "the user's own choice": ({CONF: "backend:native"}, "native", ["backend:native"], False),
    "the user's own choice, new variable": ({PLAIN_CONF: "backend:native"}, "native", ["backend:native"], False),
    "asked for already": ({CONF: f"{KEPT},{ASYNC}"}, "cudaMallocAsync", [KEPT, ASYNC], True),
}


def python(program, *more):
    """The command line of one of our programs."""
    return [sys.executable, GPU / program, *more]


def run(session, built):
    """First what fills the device, alone; then the rest."""
    memory(session)
    checks = {f"rule: {name}": lambda name=name: rule(session, name) for name in RULES}
    together(session, "takeover", {"replays": lambda: replays(session), "no takeover": lambda: untouched(session), **checks}, 6)


def same_lines(session, name, theirs, ours, notes, needed):
    """The verdict on two outputs that must be equal, with a line in them that shows the end was reached."""
    problems = [] if needed in ours.stdout else [f"no line '{needed}'"]
    if ours.figures.get("backend") != "cudaMallocAsync":
        problems.append(f"NOT TAKEN OVER: the backend is {ours.figures.get('backend')}")
    if theirs.stdout != ours.stdout:
        problems.append("output differs: " + first_difference(theirs.stdout, ours.stdout))
    if theirs.code != ours.code:
        problems.append(f"exit code {ours.code}, natively {theirs.code}")
    if said(ours):
        notes = [*notes, f"shim says: {said(ours)[0][:120]}"]
    lines = f"{len(ours.stdout.splitlines())} lines, {theirs.seconds:.1f} s -> {ours.seconds:.1f} s"
    return session.result("takeover", name, "FAIL" if problems else "PASS", "; ".join([*problems, *notes, lines]))


def memory(session):
    """Statistics, limits, errors, streams, training: line by line as over the driver's pool."""
    theirs = DRIVER.run(session, "takeover", python("torch_takeover.py"), timeout=100, figures=True)
    ours = OURS.run(session, "takeover", python("torch_takeover.py"), timeout=100, figures=True)
    if missing(session, "takeover", "statistics, limits, streams", [(DRIVER.name, theirs), (OURS.name, ours)]):
        return
    notes = []
    doubtful = [line.split(" ")[0] for line in ours.stdout.splitlines() if "False" in line]
    if doubtful:
        notes.append(f"False on both sides or differing: {', '.join(doubtful)}")
    for label, outcome in (("the driver", theirs), ("ours", ours)):
        before, after = (outcome.figures.get(f"reserved_{when}", 0) >> 20 for when in ("before", "after"))
        notes.append(f"{label}: empty_cache from {before} to {after} MiB for 192")
    same_lines(session, "statistics, limits, streams", theirs, ours, notes, "after training")
    trace(session, ours)


def trace(session, outcome):
    """What the trace says of the takeover, and that every tensor is in it with its stream."""
    seen = survey.read(session, outcome)
    facts = [f"{key} = {value}" for key, value in seen.facts if key.startswith("takeover")]
    session.result("takeover", "the trace says so", "PASS" if facts else "FAIL", "; ".join(facts)[:300] or "no fact names the takeover")
    count, streams = seen.allocations["pool-async"], len(seen.streams)
    fine = count > 500 and streams > 3 and not seen.errors
    detail = f"{count} stream-ordered allocations on {streams} streams; {dict(seen.flags)}; {'; '.join(seen.errors)}"
    session.result("takeover", "tensors in the trace", "PASS" if fine else "FAIL", detail, **seen.brief())


def replays(session):
    """Graphs replayed with memory churning between: the bits of the native allocator."""
    argv = python("torch_replays.py")
    native, driver, ours = (one.run(session, "replays", argv, timeout=150, figures=True) for one in (NATIVE, DRIVER, OURS))
    if missing(session, "takeover", "1,000 replays", [(NATIVE.name, native), (OURS.name, ours)]):
        return
    beside = "the same" if driver.stdout == native.stdout else "other lines"
    same_lines(session, "1,000 replays", native, ours, [f"the driver's pool: {beside}, code {driver.code}"], "done")


def rule(session, name):
    """One row of RULES."""
    env, backend, kept, ours_there = RULES[name]
    name = f"rule: {name}"
    outcome = Configuration(OURS.name, OURS.env | env, True).run(session, name, python("torch_conf.py"), timeout=60)
    if missing(session, "takeover", name, [(OURS.name, outcome)]):
        return
    seen = {"cuda": "", "plain": "", "backend": "", "works": False} | printed(outcome)
    both = f"{seen['cuda']},{seen['plain']}"
    problems = [f"{wanted} is gone" for wanted in kept if wanted not in both]
    problems += [] if seen["backend"] == backend else [f"the backend is {seen['backend']}"]
    problems += [] if seen["works"] else ["a sum is wrong"]
    problems += [] if (ASYNC in both) == ours_there else ["the variables do not fit the backend"]
    problems += [f"{ASYNC} stands there twice" for value in (seen["cuda"], seen["plain"]) if value.count("backend:") > 1]
    detail = f"{CONF}={seen['cuda']}, {PLAIN_CONF}={seen['plain']}, {seen['backend']}"
    session.result("takeover", name, "FAIL" if problems else "PASS", "; ".join([*problems, detail]))


def untouched(session):
    """Without the variable nothing changes."""
    outcome = PLAIN.run(session, "no takeover", python("torch_conf.py"), timeout=60)
    if missing(session, "takeover", "no takeover", [(PLAIN.name, outcome)]):
        return
    seen = printed(outcome)
    fine = seen == {"backend": "native", "cuda": "", "plain": "", "works": True}
    session.result("takeover", "no takeover", "PASS" if fine else "FAIL", f"{seen}")

"""The part of section `tune` that follows a plan: a run is recorded, planned, and run once more with the plan."""

from .tune import MIB, PREDICTED, STEPS, Wrong, ask, is_ours, record, replayed, stem

PAGE = 2 * MIB
LONGER = 2
"""The run with the plan is so many times as long as the recorded one, if that repeated itself; else as long."""
ENOUGH = 0.99
"""The part of its allocations that must go as planned."""


def check(session, name, trace):
    """One workload."""
    title = f"{name}, plan"
    if trace is None:
        session.result("tune", title, "FAIL", "there is no recording")
        return
    file = session.out / "tune" / stem(name, "run.plan")
    try:
        said = ask(session, stem(name, "plan"), ["plan", "-o", file, trace])["results"][0]
        times = LONGER if any(pool["period"] for pool in said["pools"]) else 1
        steps = list(STEPS)
        steps[steps.index("--steps") + 1] = str(times * int(steps[steps.index("--steps") + 1]))
        outcome = record(session, name, "with a plan", {"GPUSHIM_POLICY": f"plan:{file}"}, steps)
        if not is_ours(session, title, outcome):
            return
        held, _, followed, requests = replayed(session, stem(name, "planned"), outcome.traces, "vmm")
        report = ask(session, stem(name, "planned-report"), ["report", followed])["results"][0]
        facts = {key: value for key, value in report["facts"] if key.startswith("plan.")}
        pages = sum(-pool["bytes"] // PAGE * -PAGE for pool in said["pools"])
        requested = sum(device["requested"]["peak"] for device in report["summary"]["devices"])
        went = sum(int(fact.split()[2]) for fact in facts.values())
    except (Wrong, KeyError, IndexError, TypeError, ValueError) as error:
        session.result("tune", title, "FAIL", f"{type(error).__name__}: {error}")
        return
    detail = (
        f"planned {pages / MIB:.1f} MiB, held {held / MIB:.1f} for {requested / MIB:.1f} requested; "
        f"{went} allocations of {requests // 2} as planned, in a run {times} times as long ({facts})"
    )
    is_right = held <= pages * (1 + PREDICTED) and went >= ENOUGH * requests / 2
    session.result("tune", title, "PASS" if is_right else "FAIL", detail, planned=pages, held=held, facts=facts)

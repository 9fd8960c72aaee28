"""The ways in which one and the same PyTorch program is run and compared."""

import json
from dataclasses import dataclass, field

CONF = "PYTORCH_CUDA_ALLOC_CONF"


@dataclass(frozen=True, eq=False)
class Configuration:
    """A name, the environment, and whether the shim is preloaded."""

    name: str
    env: dict = field(default_factory=dict)
    shim: bool = False

    def run(self, session, name, argv, **how):
        """Runs a program in this configuration."""
        env = self.env | how.pop("env", {})
        return session.run(f"{name}, {self.name}", argv, shim=self.shim, env=env, **how)


NATIVE = Configuration("native")
EXPANDABLE = Configuration("expandable", {CONF: "expandable_segments:True"})
UNEXPANDABLE = {CONF: "expandable_segments:False"}
DRIVER = Configuration("driver's pool", {CONF: "backend:cudaMallocAsync"})
OURS = Configuration("ours", {"GPUSHIM_TAKEOVER": "torch"}, True)
PLAIN = Configuration("shim, no takeover", {}, True)


def why(outcome):
    """Why a run gave no result, for a line of the table."""
    if outcome.skipped:
        return "no time left"
    ended = "timed out" if outcome.timed_out else f"code {outcome.code}"
    last = (outcome.stderr.strip() or outcome.stdout.strip()).splitlines()[-1:]
    return f"{ended}: {' '.join(last)[-200:]}"


def missing(session, section, name, runs):
    """Adds a FAIL or SKIP line when one of the runs (name, outcome) did not end well; True if so."""
    for label, outcome in runs:
        if not outcome.ok:
            session.result(section, name, "SKIP" if outcome.skipped else "FAIL", f"{label}: {why(outcome)}")
            return True
    return False


def printed(outcome):
    """The JSON object that a program printed; empty if it printed none."""
    try:
        found = json.loads(outcome.stdout)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def said(outcome):
    """What the shim said on stderr."""
    return [line for line in outcome.stderr.splitlines() if line.startswith("gpushim")]

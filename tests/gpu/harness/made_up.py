"""What the programs of the section `situations` would print, and what gpushim would say of them: for the self-test."""

import json
import pathlib
import subprocess

from . import autopsies, shortages
from .session import Outcome

PLANTED = 50 << 20
SIZES = {"inputs": 4608, "model": 1452544, "forward": 57344, "workspace": 1 << 20}
ALLOCATED = [20 << 20, 16 << 20, 0, 0, 512]
RESERVED = [20 << 20, 20 << 20, 20 << 20, 0, 2 << 20]
WORDS = {"function": "Guilty.forward", "name": "made up"}
TRUTH = WORDS | {
    "planted": PLANTED, "forward_keeps": PLANTED, "kept": 100, "failed": "no memory",
    "allocated": ALLOCATED, "reserved": RESERVED,
}


class Trace(type(pathlib.Path())):
    """A trace that is nowhere."""

    def rename(self, target):
        return target


def truth(argv):
    """What a program prints."""
    program, more = pathlib.Path(argv[1]).stem, len(argv) > 2
    told = TRUTH | {"peak": 4 * PLANTED + more * PLANTED}
    if program == "activations":
        told |= SIZES
    if program == "references":
        told |= {"planted": 20 << 20, "kept": 20 << 20}
    return told


def situation(argv):
    """A run of such a program."""
    return Outcome(0, json.dumps(truth(argv)), "", 1.0, traces=[Trace(f"{pathlib.Path(argv[1]).stem}.trace")])


def shortage(argv, shim, env):
    """A run that runs out of memory, and not once the advice is followed."""
    advised = "--advised" in argv or env.get("GPUSHIM_LIMIT") == "9000M"
    outcome = Outcome(0, "fitted" if advised else "ran out", "", 1.0, traces=[Trace(f"shortage_{argv[2].replace('-', '_')}.trace")])
    if "--uncaught" in argv:
        outcome.code, outcome.stderr = 1, f"torch.{autopsies.ERROR}"
    if env.get("GPUSHIM_AUTOPSY") == "1":
        lines = ["gpushim: out of memory: made up", *["  held   made up"] * 5, "  more   gpushim oom made-up.trace"]
        outcome.autopsy = "\n".join([f"now: {shortages.NAMED[argv[2]]}, made up", *lines, ""])
    return outcome


def dying_rank():
    """A job of which one rank ran out of memory."""
    lines = ["gpushim: rank 1: out of memory: made up", *["  held   made up"] * 5, "  more   gpushim oom made-up.trace"]
    text = "\n".join([f"now: {shortages.NAMED['full']}, made up", *lines, ""])
    return Outcome(7, "rank 1: 7\nrank 0: -15\n", f"torch.{autopsies.ERROR}", 1.0, traces=[Trace("rank.trace")], autopsy=text)


def another_shortage(argv, shim, env):
    """A run of whose shortage gpushim names another cause."""
    return Outcome(0, "ran out", "", 1.0, traces=[Trace("shortage_unknown.trace")])


def why_short(trace):
    """What `oom` says of such a run."""
    name = trace.removeprefix("shortage_").replace("_", "-")
    cause = {"cause": "cached-elsewhere", "place": name[7:]} if name.startswith("cached-") else {"cause": name}
    advice = "GPUSHIM_LIMIT=9000M is enough up to this request." if name == "our-limit" else "Do otherwise."
    return {"causes": [cause], "advice": [advice], "verdict": "made up"}


def mistaken(argv, shim, env):
    """A run whose truth is another than what gpushim says."""
    told = truth(argv)
    for key, value in told.items():
        told[key] = value * 2 if isinstance(value, int) else f"another {key}"
    if "reserved" in argv[1]:
        told |= {"allocated": ALLOCATED[::-1], "reserved": [1 << 20] * 5}
    return Outcome(0, json.dumps(told), "", 1.0, traces=[Trace(f"{pathlib.Path(argv[1]).stem}.trace")])


def held(size, function="Guilty.forward"):
    called = {"name": function, "file": "/made/up/train.py", "kind": "python"}
    return {"function": called, "bytes": size, "name": f"{function}  train.py", "values": [0, size], "share": 1.0}


def said(command, trace):
    """What a subcommand says of a recording."""
    phases = [{"name": name, "count": 1, "kept": kept, "freed": 0} for name, kept in SIZES.items() if trace == "activations"]
    phases += [
        {"name": "forward", "count": 3, "kept": 3 * PLANTED, "freed": 0},
        {"name": "end of distillation", "count": 1, "kept": 0, "freed": PLANTED},
        {"name": "del", "count": 1, "kept": 0, "freed": 0},
        {"name": "clear", "count": 1, "kept": 0, "freed": 20 << 20},
    ]
    sizes = {"activations": SIZES["forward"], "reserved": 20 << 20, "references": 20 << 20}
    holders = [held(sizes.get(trace, PLANTED)), held(12, "another")]
    tensors = {"allocated_peak": 20 << 20, "reserved_peak": 20 << 20, "reserved_end": 2 << 20}
    finding = {
        "growth": {"growth": {"per_iteration": PLANTED * 1.01}, "keepers": holders, "verdict": "It grows: Guilty.forward"},
        "phases": {"phases": phases},
        "peak": {"holders": holders, "bytes": sum(SIZES.values())},
        "oom": {"shortages": [{"held_by": [held(100 * PLANTED)], "advice": ["Free in each iteration what Guilty.forward leaves behind."]}]},
    }
    if command == "oom" and trace.startswith("shortage_"):
        return {"results": [{"shortages": [why_short(trace)]}]}
    if command == "replay":
        policy = {"peak_reserved": (1030 if trace == "mistaken" else 1010) << 20}
        device = {"recorded_reserved": 1010 << 20, "requests": 9, "policies": [policy]}
        return {"results": [{"wrapped": False, "devices": [device]}]}
    if command == "tune":
        predicted = (900 if trace == "mistaken" else 1000) << 20
        line = {"environment": {"GPUSHIM_TAKEOVER": "torch"}, "line": "GPUSHIM_TAKEOVER=torch", "policy": "vmm"}
        advice = line | {"peak_reserved": predicted, "saves": {"bytes": 9}}
        return {"results": [{"advice": advice, "confidence": {"sentence": "Sure."}}]}
    if command == "diff":
        return {"results": [{"peak": [4 * PLANTED, 5 * PLANTED], "holders": [held(PLANTED)]}]}
    if command == "report":
        device = {"tensors": tensors, "requested": {"peak": 900 << 20}}
        kind = {"leaky_layer": "growth", "losses": "growth", "dataloader": "growth", "drop": "drops"}.get(trace)
        found = [{"kind": kind, "per_iteration": PLANTED, "bytes": PLANTED, "text": "by Guilty.forward"}] if kind else []
        composition = [{"category": "parameters", "bytes": SIZES["model"]}, {"category": "activations", "bytes": PLANTED}]
        bytes_of = 4 * PLANTED if trace in ("checkpointing", "amp", "accumulation") else sizes.get(trace, PLANTED)
        peak = {"bytes": bytes_of, "holders": holders, "composition": composition}
        return {"results": [{"findings": found, "peaks": [peak], "summary": {"devices": [device], "events": {"recorded": 9}}}]}
    return {"results": [finding[command]]}


def gpushim(session, line, folder=None):
    """In place of a call of the command."""
    command, trace = str(line[0]), pathlib.Path(line[-1]).stem.split("-")[0]
    quiet = "--of" not in line and trace in ("dataloader", "drop") or trace.startswith("clean") or command in ("phases", "peak", "report")
    quiet = quiet and not (trace.startswith("clean") and session.outcome is mistaken)
    # Each fix that a first screen must have.
    text = f"made up\n`x.detach()` loss.item() torch.utils.checkpoint torch.autocast accumulate gradients as `x.detach()`\n{trace}.py:7\n"
    text += "Guilty.forward\n"
    if command == "events":
        marks = [{"name": name, "ns": 1} for name in ("after forward", "before the drop", "after del")]
        text = json.dumps({"results": [{"events": marks}]})
    elif command == "html":
        pathlib.Path(line[2]).write_text("<html>", encoding="utf-8")
    elif "json" in line:
        text = json.dumps(said(command, trace))
    quiet = quiet or command in ("events", "html")
    # Of two ways of training the second needs less.
    quiet = quiet or command == "diff" and trace not in ("baseline", "checkpointing")
    return subprocess.CompletedProcess(line, 0 if quiet else 1, text, "")

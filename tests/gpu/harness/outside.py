"""Section `outside`: each owner's row is what leaving the owner out saves, and the rows add up to what NVML says of the
process."""

import json
import subprocess
import sys

from .session import GPU, ROOT

MIB = 1 << 20
OWNERS = {
    # what is left out -> the rows that are its own, by part and owner
    "nccl-1": [("communicator", "NCCL")],
    "nccl-2": [("communicator", "NCCL")],
    "nccl-3": [("communicator", "NCCL")],
    "cublas": [("library", "cuBLAS")],
    "cudnn": [("library", "cuDNN")],
    "graph": [("graph-pools", "PyTorch"), ("graphs", "CUDA graphs"), ("graph-nodes", "CUDA graphs")],
    "extension": [("code", "libextension.so")],
}
SURE = {"nccl-1", "nccl-2", "nccl-3", "graph", "extension"}
"""Owners that take memory of their own in any case: a row of nothing, and nothing saved, is a failure."""
NEAR, NEAR_LEAST = 0.02, 2 * MIB
"""How far a row may be from what leaving its owner out saves: a part of it, and the driver's granule at least."""
SUM = 64 * MIB
"""How far the sum may be from NVML's figure."""
RECORDED = {"GPUSHIM_POLICY": "off", "GPUSHIM_STACKS": "all"}


def run(session, built):
    del built
    extension = session.work / "libextension.so"
    source = ROOT / "tests/programs/lib_takes.c"
    made = subprocess.run(
        ["gcc", "-O1", "-shared", "-fPIC", "-fno-optimize-sibling-calls", "-DNAME=grow", "-o", extension, source, "-ldl"],
        capture_output=True, text=True,
    )
    if made.returncode:
        session.result("outside", "extension", "FAIL", made.stderr)
        return
    whole = measure(session, "", extension)
    if whole is None:
        return
    session.log(json.dumps(whole["memory"], indent=1))
    total(session, whole)
    rows = []
    for name, own in OWNERS.items():
        part = measure(session, name, extension)
        if part is not None:
            rows.append(compare(session, name, own, whole, part))
    session.table("Memory outside PyTorch, MiB", ["left out", "saves", "its rows less", "of what is not told apart", "all rows"], rows)


def measure(session, without, extension):
    """A run with one owner left out: NVML's figure and the table at the end; None if it failed."""
    argv = [sys.executable, GPU / "outside.py", "--extension", extension, "--without", without]
    label = f"without {without}" if without else "everything"
    outcome = session.run(f"outside, {label}", argv, shim=True, env=RECORDED, timeout=60, figures=True)
    if not outcome.ok or not outcome.traces:
        session.result("outside", label, "SKIP" if outcome.skipped else "FAIL", outcome.stderr.strip()[-300:] or "no trace")
        return None
    report = [session.command, "report", "--format", "json", outcome.traces[0]]
    said = subprocess.run(report, capture_output=True, text=True, timeout=60)
    memory = json.loads(said.stdout)["results"][0]["memory"][0]["at_end"]
    return {"memory": memory, "nvml": outcome.figures["nvml"], "device": outcome.figures["device"]}


def used(one):
    """What the process uses by NVML, else what the device has in use."""
    return one["device"] if one["nvml"] is None else one["nvml"]


def total(session, whole):
    memory = whole["memory"]
    if whole["nvml"] is None:
        said, ours, by = whole["device"], memory["used"], "the driver's figure of the device, as NVML does not list the process"
    else:
        said, ours, by = whole["nvml"], memory["by_process"], "NVML's figure of the process"
    detail = f"rows {ours / MIB:,.0f} MiB, {by} {said / MIB:,.0f} MiB; others told: {memory['others_told']}"
    session.result("outside", "sum", "PASS" if abs(ours - said) <= SUM else "FAIL", detail)


def held(one, own):
    """Bytes of these rows."""
    return sum(row["bytes"] for row in one["memory"]["rows"] if (row["part"], row["owner"]) in own)


def compare(session, name, own, whole, part):
    """What leaving an owner out saves, against its rows; and where the rest of it is."""
    saved = used(whole) - used(part)
    rows = held(whole, own) - held(part, own)
    untold = held(whole, [("rest", "CUDA"), ("modules", "CUDA")]) - held(part, [("rest", "CUDA"), ("modules", "CUDA")])
    near = max(NEAR_LEAST, NEAR * abs(saved))
    everything = whole["memory"]["used"] - part["memory"]["used"]
    if max(rows, saved) < MIB:
        status, detail = "FAIL" if name in SURE else "INFO", "it takes nothing"
    elif abs(rows - saved) <= near:
        status, detail = "PASS", "its rows are what it saves"
    elif abs(rows + untold - saved) <= near:
        status, detail = "INFO", "the difference is code, and what is not told apart"
    else:
        status, detail = "FAIL", "its rows are not what it saves"
    figures = [saved, rows, untold, everything]
    text = ", ".join(f"{what} {bytes / MIB:,.1f}" for what, bytes in zip(("saves", "rows", "code and rest", "all rows"), figures))
    session.result("outside", name, status, f"{detail}: MiB: {text}")
    return [name, *(f"{bytes / MIB:,.1f}" for bytes in figures)]

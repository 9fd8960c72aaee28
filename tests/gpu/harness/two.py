"""Section `two`: two GPUs. Distributed training, copies between peers, tensors sent to another process."""

import subprocess
import sys

from . import survey
from .basics import first_difference
from .configurations import EXPANDABLE, NATIVE, OURS, UNEXPANDABLE, Configuration, missing, said, why
from .jobs import together
from .session import GPU
from .shortages import AUTOPSY, NAMED, Wrong, autopsy

BLOCKS = Configuration("blocks", {"GPUSHIM_POLICY": "blocks"}, True)
VMM = Configuration("vmm", {"GPUSHIM_POLICY": "vmm"}, True)
# Pages move whether or not memory is short.
ELASTIC = Configuration("elastic", {"GPUSHIM_POLICY": "off", "GPUSHIM_ELASTIC": "on"}, True)
SEGMENTS = Configuration("elastic, default segments", UNEXPANDABLE | ELASTIC.env, True)
POOL_EXPANDABLE = Configuration("auto, expandable", EXPANDABLE.env | {"GPUSHIM_POLICY": "auto"}, True)


def gpus():
    """How many GPUs this machine has, by nvidia-smi."""
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30)
        return sum(line.startswith("GPU ") for line in done.stdout.splitlines())
    except (OSError, subprocess.SubprocessError):
        return 0


def run(session, built, count=None):
    """Everything at once: nothing here is timed."""
    count = gpus() if count is None else count
    if count < 2:
        session.result("two", "GPUs", "SKIP", f"{count} here")
        return

    def python(program, *more):
        return [sys.executable, GPU / program, *more]

    reduce = python("torch_all_reduce.py")
    ddp, peers, ipc = python("torch_ddp.py"), python("torch_peers.py"), python("torch_ipc.py")
    programs = {
        # name -> program and what it must print
        "DDP over NCCL": (ddp, "weights 1"),
        "peer copies": (peers, "wrong 0"),
        "IPC": (ipc, "wrong 0\nrefused 0"),
        "all-reduce": (reduce, "wrong 0\nrefused 0"),
        "NCCL in a graph": (python("torch_nccl_graph.py"), "wrong 0"),
    }
    on_elastic = {f"{name}, {way.name}": (*of, way) for name, of in programs.items() for way in (ELASTIC, SEGMENTS)}
    together(session, "two", {
        **{name: lambda name=name, argv=argv, way=way, needed=needed: equal(session, name, argv, way, needed)
           for name, (argv, needed, way) in on_elastic.items()},
        "DDP over NCCL, 50 steps": lambda: equal(session, "DDP over NCCL, 50 steps", ddp, OURS, "weights 1"),
        "peer copies": lambda: equal(session, "peer copies", peers, OURS, "wrong 0"),
        "IPC, blocks": lambda: equal(session, "IPC, blocks", ipc, BLOCKS, "wrong 0\nrefused 0"),
        "IPC, vmm": lambda: equal(session, "IPC, vmm", ipc, VMM, "wrong 0\nrefused 0"),
        "IPC of pages": lambda: equal(session, "IPC of pages", python("ipc_paged.py"), VMM, "wrong 0"),
        "all-reduce, expandable": lambda: reduced(session, "all-reduce, expandable", reduce),
        "DDP, one rank out of memory": lambda: dying(session, "DDP, one rank out of memory", python("torch_dying_rank.py")),
        # PyTorch's backend has no IPC of its own and refuses before anybody is asked.
        "IPC, takeover": lambda: refused(session, "IPC, takeover", ipc, OURS),
    })


def equal(session, name, argv, ours, needed=""):
    """Same output natively and over ours, with a line in it that says that all is well."""
    natively = NATIVE.run(session, name, argv, timeout=120)
    shimmed = ours.run(session, name, argv, timeout=120)
    if missing(session, "two", name, [("native", natively), (ours.name, shimmed)]):
        return
    problems = []
    if natively.stdout != shimmed.stdout:
        problems.append("output differs: " + first_difference(natively.stdout, shimmed.stdout))
    if needed not in shimmed.stdout:
        problems.append(f"no line '{needed!r}'")
    if said(shimmed):
        problems.append(f"shim says: {said(shimmed)[0][:160]}")
    seen = survey.read(session, shimmed)
    count = seen.allocations["pool-async"]
    if ours is OURS and not count:
        problems.append("no stream-ordered allocation in the traces: nothing was taken over")
    lines = f"{len(shimmed.stdout.splitlines())} lines equal natively, {count} stream-ordered allocations, {natively.seconds:.1f} s -> {shimmed.seconds:.1f} s"
    session.result("two", name, "FAIL" if problems else "PASS", "; ".join(problems or [lines]))


def reduced(session, name, argv):
    """Expandable segments: natively CUDA has no handle of them, over ours every sum is right."""
    natively = EXPANDABLE.run(session, name, argv, timeout=120)
    shimmed = POOL_EXPANDABLE.run(session, name, argv, timeout=120)
    if missing(session, "two", name, [(EXPANDABLE.name, natively), (POOL_EXPANDABLE.name, shimmed)]):
        return
    right = (natively.stdout, shimmed.stdout) == ("wrong 0\nrefused 2\n", "wrong 0\nrefused 0\n")
    lines = "; ".join(" ".join(outcome.stdout.split()) for outcome in (natively, shimmed))
    session.result("two", name, "PASS" if right else "FAIL", f"{lines}; {natively.stderr.strip()[-100:]}")


def dying(session, name, argv):
    """One rank runs out of memory and ends by that error; the autopsy is its own, and the job ends as natively."""
    natively = session.run(f"{name}: native", argv, timeout=120)
    outcome = session.run(name, argv, shim=True, env=AUTOPSY, timeout=120)
    if natively.skipped or outcome.skipped:
        session.result("two", name, "SKIP", "no time left")
        return
    try:
        if (outcome.code, outcome.stdout) != (natively.code, natively.stdout) or "rank 1: 7" not in outcome.stdout:
            raise Wrong(f"the job ended with {outcome.code}, natively {natively.code}: {outcome.stdout[-200:]}")
        session.result("two", name, "PASS", autopsy(outcome, NAMED["full"], "rank 1: "))
    except Wrong as error:
        session.result("two", name, "FAIL", f"{error}; {outcome.stderr[-300:]}")


def refused(session, name, argv, ours):
    """Every tensor is refused or arrives right."""
    outcome = ours.run(session, name, argv, timeout=90)
    if outcome.skipped or outcome.timed_out:
        missing(session, "two", name, [(ours.name, outcome)])
        return
    lines = dict(line.rsplit(" ", 1) for line in outcome.stdout.splitlines() if " " in line)
    problems = []
    if "wrong" not in lines:
        problems.append(f"it did not reach its end: {why(outcome)}")
    elif lines["wrong"] != "0":
        problems.append(f"WRONG DATA {lines['wrong']} times")
    count = int(lines.get("refused", 0))
    error = next((line for line in outcome.stderr.splitlines() if line.startswith("refused:")), "")
    detail = f"{count} refused, {'; '.join(said(outcome)[:2])[:200] or 'the shim says nothing'}; {error[:160]}"
    session.result("two", name, "FAIL" if problems else "PASS", "; ".join([*problems, detail]))

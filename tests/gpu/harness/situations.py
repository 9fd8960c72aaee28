"""Section `situations`: what users live through, as programs for PyTorch with a planted truth each, and what the
command says of them: the function, the size within 2 %, and nothing at all of programs without a fault.

What the command prints is kept in `guide/` of the output folder, for docs/guide.md (`scripts/guide DIR`)."""

import json
import re
import subprocess
import sys
from dataclasses import dataclass, field

from . import machine
from .configurations import missing
from .jobs import together
from .session import GPU
from .traces import events_in

STACKS = {"GPUSHIM_STACKS": "all", "GPUSHIM_TRACE_SIZE": "64M"}
WITHIN = 0.02
"""How far a size may be from the one that was planted."""
CLEAN = 20
"""Programs of clean.py."""
SILENT = ("growth", "oom", "report")
"""Commands that must exit with 0 on a clean program."""
AT_A_TIME = 8
MIB = 1 << 20


def gpushim(session, line, folder=None):
    """Runs a subcommand."""
    argv = [str(session.command), *map(str, line)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, cwd=folder)


class Wrong(Exception):
    """The command does not say what was planted."""


@dataclass
class Case:
    """What one or two runs of a program printed and left, and the way to ask about it."""

    session: object
    name: str
    truths: list
    traces: list
    folder: object
    seen: list = field(default_factory=list)

    def ask(self, name, *arguments, code=None):
        """Runs a subcommand twice: its text goes to guide/, its JSON comes back."""
        line = [name, *arguments, *(trace.name for trace in self.traces)]
        text = self.command(line)
        shown = self.session.out / "guide" / f"{self.name}-{name}.txt"
        shown.write_text(f"$ gpushim {' '.join(line)}\n{text.stdout}", encoding="utf-8")
        self.seen.append(shown)
        found = self.command([name, "--format", "json", *line[1:]])
        if text.returncode == 2 or found.returncode != text.returncode:
            raise Wrong(f"gpushim {' '.join(line)}: exit codes {text.returncode}, {found.returncode}: {text.stderr[-200:]}")
        if code is not None and text.returncode != code:
            raise Wrong(f"gpushim {name}: exit code {text.returncode}, expected {code}")
        return json.loads(found.stdout)["results"][0]

    def mark(self, name):
        """When a mark was made, in seconds as `peak --at` takes them."""
        done = self.command(["events", "--kind", "mark", "--format", "json", self.traces[0].name])
        for event in events_in(done.stdout):
            if event["name"] == name:
                # A little later: the mark itself is the last event before.
                return f"{event['ns'] / 1e9 + 1e-6:.6f}"
        raise Wrong(f"no mark `{name}` in the trace")

    def command(self, line):
        """A call of gpushim in the folder of the traces."""
        return gpushim(self.session, line, self.folder)

    def beginning(self):
        """The first lines of what the commands printed, for the message."""
        lines = [line for path in self.seen for line in path.read_text(encoding="utf-8").splitlines()[:5] if line]
        return " / ".join(line[:160] for line in lines)[:900]


def near(what, seen, planted, within=WITHIN):
    """A size is the planted one."""
    if seen is None or abs(seen - planted) > within * abs(planted):
        raise Wrong(f"{what}: {seen}, planted {planted}")


def named(what, text, function):
    """A text names the function."""
    if function not in (text or ""):
        raise Wrong(f"{what}: `{text}`, planted `{function}`")


def of_function(holders, function):
    """Bytes of all holders by a function: several lines of it may hold blocks."""
    return sum(one["bytes"] for one in holders if function in name_of(one))


def name_of(site):
    """The function of a call site; empty if none was recorded."""
    return (site["function"] or {}).get("name", "")


def growth(case, *arguments):
    """It grows by what was planted, kept by the function."""
    truth = case.truths[0]
    found = case.ask("growth", *arguments, code=1)
    near("growth per iteration", found["growth"]["per_iteration"], truth["planted"])
    named("who keeps most", name_of(found["keepers"][0]), truth["function"])
    named("the verdict", found["verdict"], truth["function"])
    return f"{found['growth']['per_iteration']:.0f} B an iteration, {found['keepers'][0]['function']}"


SCREEN = 36
"""Lines of the first screen of `report`."""


@dataclass(frozen=True)
class Screen:
    """What the first screen of `report` must say of a program."""

    fix: str = ""
    """A part of the fix."""
    finding: str = ""
    """The kind of the first finding; empty where nothing is wrong."""
    size: object = None
    """From a truth the bytes that it must give: of each iteration, or of all, by the finding; else of the holder."""
    category: str = ""
    """The largest part of the peak's composition; the size is then that of the peak."""


FIRST = {
    "leaky_layer": Screen("as `x.detach()`", "growth", lambda truth: truth["planted"]),
    "losses": Screen("loss.item()", "growth", lambda truth: truth["planted"]),
    "dataloader": Screen("", "growth", lambda truth: truth["planted"]),
    "drop": Screen("", "drops", lambda truth: truth["planted"]),
    "checkpointing": Screen("torch.utils.checkpoint", "", lambda truth: truth["peak"], "activations"),
    "amp": Screen("torch.autocast", "", lambda truth: truth["peak"], "activations"),
    "accumulation": Screen("accumulate gradients", "", lambda truth: truth["peak"], "activations"),
    # At the peak, in the backward pass, some activations are gone: their size is that of `peak --at`.
    "activations": Screen(),
    "references": Screen("", "", lambda truth: truth["planted"]),
    "reserved": Screen("", "", lambda truth: max(truth["allocated"])),
}
"""What one run cannot show is not here: `baseline` is a comparison of two, and `oom` is in the section `shortages`."""


def first_screen(case):
    """`report` with everything at its default says it all before the reader has to scroll."""
    wanted, truth = FIRST.get(case.name), case.truths[0]
    found = Case(case.session, case.name, [truth], case.traces[:1], case.folder).ask("report")
    if wanted is None:
        return
    shown = (case.session.out / "guide" / f"{case.name}-report.txt").read_text(encoding="utf-8").splitlines()[1:SCREEN + 1]
    screen = " ".join(" ".join(shown).split())
    peak, findings = found["peaks"][0], found["findings"]
    kind = findings[0]["kind"] if findings else ""
    if kind != wanted.finding:
        raise Wrong(f"report's first finding is `{kind}`, expected `{wanted.finding}`")
    named("report's first screen", screen, wanted.fix)
    if "function" in truth:
        named("report's first screen", screen, truth["function"])
    if wanted.finding != "growth" or case.name != "dataloader":
        if not re.search(rf"\b(?:{case.name}|blocks)\.py:\d", screen):
            raise Wrong(f"no line of {case.name}.py on report's first screen")
    if wanted.finding == "growth":
        seen = findings[0]["per_iteration"]
    elif wanted.category:
        largest = max(peak.get("composition") or [{"category": "", "bytes": 0}], key=lambda part: part["bytes"])
        if largest["category"] != wanted.category:
            raise Wrong(f"report: most of the peak is {largest}, expected {wanted.category}")
        seen = peak["bytes"]
    else:
        seen = of_function(peak["holders"], truth["function"]) if "function" in truth else peak["bytes"]
    if wanted.size:
        near("report's first screen", seen, wanted.size(truth))


def leaky_layer(case):
    said = growth(case)
    page = case.session.out / "guide" / "leaky_layer.html"
    done = case.command(["html", "--output", page, case.traces[0].name])
    if done.returncode != 0 or not page.exists():
        raise Wrong(f"gpushim html: exit code {done.returncode}: {done.stderr[-200:]}")
    return said


def losses(case):
    return growth(case)


def phase(found, name):
    """The phase of a name."""
    for one in found["phases"]:
        if one["name"] == name:
            return one
    raise Wrong(f"no phase `{name}` among {[one['name'] for one in found['phases']]}")


def activations(case):
    """The article's sizes, from the allocator's own account to the function."""
    truth = case.truths[0]
    if (truth["inputs"], truth["model"], truth["forward"]) != (4608, 1457152 - 4608, 1514496 - 1457152):
        raise Wrong(f"PyTorch itself has other sizes than the article: {truth}")
    found = case.ask("phases")
    for name in ("inputs", "model", "forward"):
        near(f"what `{name}` keeps", phase(found, name)["kept"], truth[name], 0)
    held = case.ask("peak", "--at", case.mark("after forward"))
    near("live after the forward pass", held["bytes"], sum(truth[name] for name in ("inputs", "model", "forward", "workspace")), 0)
    near("activations", of_function(held["holders"], truth["function"]), truth["forward"], 0)
    return f"4608, 1457152 and 1514496 B as in the article, and {truth['workspace']} of cuBLAS"


def two_ways(case):
    """Both peaks are PyTorch's, and the function is where they differ."""
    before, after = case.truths
    # Less is no regression; but what is computed again makes the backward pass need more.
    found = case.ask("diff", code=int(case.name == "checkpointing"))
    for side, truth in enumerate(case.truths):
        near(f"peak {side}", found["peak"][side], truth["peak"])
    named("the greatest change", found["holders"][0]["name"], before["function"])
    for trace, truth in zip(list(case.traces), case.truths):
        one = Case(case.session, trace.stem, [truth], [trace], case.folder)
        kept = phase(one.ask("phases"), "forward")
        near("what a forward pass keeps", kept["kept"] / kept["count"], truth["forward_keeps"])
    return f"peaks {before['peak'] / MIB:.0f} and {after['peak'] / MIB:.0f} MiB, {found['holders'][0]['name']}"


def baseline(case):
    """The later run has what was planted more than the first, by the function."""
    before, after = case.truths
    found = case.ask("diff", code=1)
    near("the peak's change", found["peak"][1] - found["peak"][0], after["planted"])
    top = found["holders"][0]
    named("the greatest change", top["name"], after["function"])
    # A function that only one run has is absent in the other.
    near("its size", (top["values"][1] or 0) - (top["values"][0] or 0), after["planted"])
    return f"{after['planted'] / MIB:.1f} MiB more by {top['name']}"


def drop(case):
    """The fall, and who held what fell."""
    truth = case.truths[0]
    freed = phase(case.ask("phases"), "end of distillation")["freed"]
    near("freed at the drop", freed, truth["planted"])
    held = case.ask("peak", "--at", case.mark("before the drop"))
    near("held before it", of_function(held["holders"], truth["function"]), truth["planted"])
    case.ask("growth", code=0)
    # The activations of a step fall with it.
    fell = case.ask("report")["findings"][0]
    if fell["bytes"] < truth["planted"]:
        raise Wrong(f"memory fell by {fell['bytes']}, expected at least {truth['planted']}")
    named("what fell", fell["text"], truth["function"])
    return f"{freed / MIB:.0f} MiB"


def reserved(case):
    """Allocated and reserved are PyTorch's, at their peak and after empty_cache."""
    truth = case.truths[0]
    tensors = case.ask("report")["summary"]["devices"][0]["tensors"]
    for name, seen, told in (
        ("peak allocated", tensors["allocated_peak"], max(truth["allocated"])),
        ("peak reserved", tensors["reserved_peak"], max(truth["reserved"])),
        # The small tensor goes when the program ends.
        ("reserved after empty_cache", tensors["reserved_end"], truth["reserved"][-1]),
    ):
        near(name, seen, told, 0)
    held = case.ask("peak")
    near("held at the peak", of_function(held["holders"], truth["function"]), 20 * MIB)
    return f"allocated {truth['allocated']}, reserved {truth['reserved']}"


def references(case):
    """`del` frees nothing, and what stays was made by the function."""
    truth = case.truths[0]
    near("PyTorch's own figure after del", truth["kept"], truth["planted"])
    found = case.ask("phases")
    near("freed by del", phase(found, "del")["freed"], 0)
    near("freed by clear", phase(found, "clear")["freed"], truth["planted"])
    held = case.ask("peak", "--at", case.mark("after del"))
    near("held after del", of_function(held["holders"], truth["function"]), truth["planted"])
    return f"{truth['planted']} B by {name_of(held['holders'][0])}"


def dataloader(case):
    said = growth(case, "--of", "host")
    tensors = case.command(["growth", "--format", "json", case.traces[0].name])
    if tensors.returncode != 0:
        raise Wrong(f"tensors grow: {json.loads(tensors.stdout)['results'][0]['verdict']}")
    return said


def oom(case):
    """Who held most when memory ran out."""
    truth = case.truths[0]
    if not truth["failed"]:
        raise Wrong("the program did not run out of memory")
    found = case.ask("oom", code=1)
    line = ["oom", "--brief", case.traces[0].name]
    (case.session.out / "guide" / f"{case.name}-brief.txt").write_text(f"$ gpushim {' '.join(line)}\n{case.command(line).stdout}", encoding="utf-8")
    held = found["shortages"][0]["held_by"][0]
    named("who held most", name_of(held), truth["function"])
    near("what it held", held["bytes"], truth["kept"] * truth["planted"])
    advice = " ".join(found["shortages"][0]["advice"])
    if "in each iteration" not in advice or truth["function"] not in advice:
        raise Wrong(f"the advice names no growth of {truth['function']}: {advice}")
    growth(case)
    return f"{held['bytes'] / MIB:.0f} MiB by {name_of(held)}"


CHECKS = {
    # program -> check, arguments of each run, more environment
    "activations": (activations, [[]], {}),
    "leaky_layer": (leaky_layer, [[]], {}),
    "losses": (losses, [[]], {}),
    "checkpointing": (two_ways, [[], ["--on"]], {}),
    "amp": (two_ways, [[], ["--on"]], {}),
    "accumulation": (two_ways, [[], ["--on"]], {}),
    "baseline": (baseline, [[], ["--ema"]], {}),
    "drop": (drop, [[]], {}),
    "reserved": (reserved, [[]], {}),
    "references": (references, [[]], {}),
    "dataloader": (dataloader, [[]], {}),
    "oom": (oom, [[]], {"GPUSHIM_LIMIT": "2G"}),
}


def run(session, built):
    """Those with a fault, then those without, several at a time: nothing here is timed."""
    guide = session.out / "guide"
    guide.mkdir(exist_ok=True)
    (guide / "device").write_text(machine.device(), encoding="utf-8")
    faulty = {name: lambda name=name: situation(session, name) for name in CHECKS}
    clean = {f"clean {number}": lambda number=number: peace(session, number) for number in range(CLEAN)}
    together(session, "situations", faulty | clean, AT_A_TIME)


def record(session, label, program, arguments, env):
    """Runs a program under the shim with stacks."""
    argv = [sys.executable, GPU / "situations" / f"{program}.py", *arguments]
    return session.run(f"situation {label}", argv, shim=True, env=STACKS | env, timeout=60)


def told(outcome):
    """The truth that a program printed last; None if it printed none."""
    try:
        return json.loads(outcome.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        return None


def longest(session, traces):
    """The trace with most events: workers that fork may leave traces of their own."""
    def events(path):
        done = gpushim(session, ["report", "--format", "json", path])
        return json.loads(done.stdout)["results"][0]["summary"]["events"]["recorded"] if done.stdout else 0

    return traces[0] if len(traces) == 1 else max(traces, key=events)


def situation(session, name):
    """Records a program once or twice and checks what the commands say."""
    check, runs, env = CHECKS[name]
    folder, truths, traces = session.folder(), [], []
    for number, arguments in enumerate(runs):
        outcome = record(session, name, name, arguments, env)
        if missing(session, "situations", name, [(" ".join([name, *arguments]), outcome)]):
            return
        truth = told(outcome)
        if truth is None or not outcome.traces:
            end = outcome.stdout[-200:] or outcome.stderr[-200:]
            return session.result("situations", name, "FAIL", f"no truth or no trace ({len(outcome.traces)}): {end}")
        label = name + "".join(f"-{argument.strip('-')}" for argument in arguments)
        trace = folder / f"{label}.trace"
        longest(session, outcome.traces).rename(trace)
        truths.append(truth)
        traces.append(trace)
        (session.out / "guide" / f"{label}.out").write_text(outcome.stdout, encoding="utf-8")
    case = Case(session, name, truths, traces, folder)
    try:
        status, detail = "PASS", check(case)
        first_screen(case)
    except (Wrong, KeyError, IndexError, TypeError, ValueError, OSError, subprocess.SubprocessError) as error:
        status, detail = "FAIL", f"{type(error).__name__}: {error}; truth {truths}; {case.beginning()}"
    session.log(f"situation {name}: {detail}")
    return session.result("situations", name, status, detail[:1500])


def peace(session, number):
    """Records a program without a fault: no command has anything to say."""
    name = f"clean {number}"
    outcome = record(session, name, "clean", [str(number)], {})
    if missing(session, "situations", name, [(name, outcome)]):
        return
    truth = told(outcome)
    if truth is None or not outcome.traces:
        return session.result("situations", name, "FAIL", f"no truth or no trace: {outcome.stdout[-200:]}")
    trace, alarms = longest(session, outcome.traces), []
    for command in SILENT:
        done = gpushim(session, [command, trace])
        if done.returncode != 0:
            lines = " / ".join((done.stdout or done.stderr).splitlines()[:5])
            alarms.append(f"gpushim {command}: exit code {done.returncode}: {lines[:400]}")
    name = f"clean {number}, {truth['name']}"
    detail = "; ".join(alarms) or f"silent, {outcome.seconds:.1f} s"
    session.result("situations", name, "FAIL" if alarms else "PASS", detail)

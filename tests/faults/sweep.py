"""The fault sweep: every driver function that the shim calls, at its first, second and a random later call, with every
code that it may answer, and with delays; functions that are refused for good; contexts that die. After each the process
must have got the driver's code, every block its own contents, nothing may have been handed out twice, and the rest
must go on. `scripts/faults` builds what is needed and starts this; rules.py says what is right.
"""

import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tests" / "faults"))

import rules

POLICIES = ("auto", "blocks", "auto/novmm")
# Functions that a pool of mapped memory needs: refused from some call on, it must serve without them.
REFUSED = [(name, code) for name in ("cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess") for code in (1, 2, 800, 801)]
# The marks in docs/reliability.md between which the table stands.
BEGIN, END = "<!-- scripts/faults --doc writes from here -->", "<!-- to here -->"


@dataclasses.dataclass(frozen=True)
class Case:
    """One run: a policy, and the faults in the driver."""

    policy: str
    kind: str  # code, delay, refusal, sticky
    function: str
    when: str
    code: int
    mode: str = "alone"
    trace: bool = False

    def fault(self):
        """STANDIN_FAULT of it."""
        if self.kind == "delay":
            return f"{self.function}:{self.when}:0:before={self.code}ms:after={self.code}ms"
        return f"{self.function}:{self.when}:{self.code}"

    def command(self):
        """How to run it again."""
        return f"scripts/faults --again '{self.policy} {self.mode} {int(self.trace)} {self.fault()}'"


def functions():
    """The driver functions that the shim hooks or calls, from its source."""
    text = (ROOT / "shim" / "src" / "cuda" / "functions" / "list.rs").read_text(encoding="utf-8")
    found = set(re.findall(r"^    fn (cu[A-Z]\w*)\(", text, re.MULTILINE))
    return sorted(found)


class Sweep:
    """The runs, their verdicts and what they add up to."""

    def __init__(self, options):
        self.options = options
        self.random = random.Random(options.seed)
        self.folder = tempfile.TemporaryDirectory(prefix="gpushim-faults-")
        self.base = {}
        self.rows = defaultdict(Counter)
        self.bad = []

    def run(self, policy, mode="alone", fault=None, trace=False, count=False, parts=None):
        """One process: (exit code or None if it hung, lines of output, lines on standard error)."""
        name, *lacks = policy.split("/")
        variables = {key: value for key, value in os.environ.items() if not key.startswith(("GPUSHIM_", "STANDIN_", "LD_"))}
        variables |= {
            "LD_LIBRARY_PATH": self.options.libraries, "STANDIN_DEVICES": "2", "STANDIN_MEMORY": "256M",
            "ALLOW": str(self.base[policy]["lost"] if policy in self.base else 1 << 40),
        }
        if name != "native":
            variables |= {"LD_PRELOAD": self.options.shim, "GPUSHIM_POLICY": name, "GPUSHIM_DECAY": "20ms",
                          "GPUSHIM_TRACE": f"{self.folder.name}/%p.trace" if trace else "off", "GPUSHIM_TRACE_SIZE": "64K"}
        if lacks:
            variables["STANDIN_LACKS"] = "vmm"
        if parts:
            variables["PARTS"] = parts
        if fault:
            variables["STANDIN_FAULT"] = fault
        if count:
            variables |= {"STANDIN_COUNT": "1", "ALLOW": "0"}
        process = subprocess.Popen([self.options.workload, mode], env=variables, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   cwd=self.folder.name)
        try:
            out, err = process.communicate(timeout=self.options.timeout)
            code = process.returncode
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            code = None
        if trace:
            for left in pathlib.Path(self.folder.name).glob(f"{process.pid}*"):
                left.unlink(missing_ok=True)
        return code, out.splitlines(), err.splitlines()

    def baseline(self, policy):
        """What a policy does without faults: calls of each function, bytes that stay, lines on standard error."""
        code, out, err = self.run(policy, count=True)
        wrong = [line for line in out if line.startswith(("call ", "overlap", "spoiled"))] + [line for line in err if line.startswith("standin: ")]
        counts = {}
        if "counts" in out:
            counts = {name: int(number) for name, number in (line.split() for line in out[out.index("counts") + 1:])}
        if code != 0 or wrong or not counts:
            self.bad.append((f"{policy} without a fault", f"exit code {code}: {(wrong or out or err or ['nothing'])[0]}"))
        # The functions that make memory stay are called in runs of their own.
        more = self.run(policy, count=True, parts="da")[1]
        handles = dict(line.split() for line in more[more.index("counts") + 1:]) if "counts" in more else {}
        counts |= {name: int(handles[name]) for name in rules.MAKES_STAY if name in handles and name not in counts}
        lost = self.end(out).get("lost", 0)
        self.base[policy] = {"counts": counts, "lost": max(lost, 0), "lines": len([line for line in err if line.startswith("gpushim: ")])}

    @staticmethod
    def end(out):
        """The figures of the line `end`."""
        words = next((line.split()[1:] for line in out if line.startswith("end ")), [])
        return {name: int(value) for name, value in zip(words[::2], words[1::2])}

    def cases(self):
        """All of them."""
        known = functions()
        for policy in self.options.policies:
            counts = self.base[policy]["counts"]
            for function in (name for name in known if counts.get(name)):
                calls = counts[function]
                whens = sorted({1, min(2, calls), self.random.randint(min(3, calls), calls)})
                for when in whens:
                    for code in rules.codes(function):
                        yield Case(policy, "code", function, str(when), code, trace=self.random.random() < 0.1)
                    yield Case(policy, "delay", function, str(when), self.random.choice((5, 15, 50)), "together")
                yield Case(policy, "code", function, str(self.random.randint(1, calls)), self.random.choice(rules.codes(function)), "together")
            if policy == "auto":
                for function, code in REFUSED:
                    for when in {1, self.random.randint(1, max(counts.get(function, 1), 1))}:
                        yield Case(policy, "refusal", function, f"{when}+", code)
            for code in (700, 719, 4):
                for _ in range(12):
                    yield Case(policy, "sticky", "cu*", f"{self.random.randint(5, sum(counts.values()))}+", code)

    def judge(self, case, code, out, err):
        """What became of the process: kinds of outcomes, and complaints."""
        kinds, found = Counter(), []
        end = self.end(out)
        if code is None:
            found.append("it hangs")
        elif code < 0:
            found.append(f"killed by signal {-code}")
        elif case.kind == "sticky":
            pass
        elif code != 0 or not end:
            found.append(f"exit code {code}: {out[-1] if out else 'nothing said'}")
        # What the driver refused to take back is missing from then on.
        is_short = bool(end) and end["lost"] > self.base[case.policy]["lost"] and case.kind == "code" and case.function in rules.GIVES_BACK
        for line in out:
            word, *rest = line.split()
            if word == "overlap" or (word == "spoiled" and case.kind != "sticky"):
                found.append(line)
            if word != "call" or case.kind == "sticky":
                continue
            name, result, struck = rest[0], int(rest[1]), rest[2] == "1"
            # Some calls are to fail, for the want of memory.
            if case.kind in ("delay", "refusal") and rest[4] == "1":
                kinds["served"] += 1
                continue
            if is_short and not struck and result == rules.OUT_OF_MEMORY:
                kinds["out of memory"] += 1
                continue
            kind, complaint = self.judge_call(case, name, result, struck)
            kinds[kind] += 1
            if complaint:
                found.append(complaint)
        if end and not kinds and end["hits"] > 0:
            kinds["unseen"] += 1
        stays = case.kind == "sticky" or case.function in rules.MAKES_STAY
        if end and end["lost"] > self.base[case.policy]["lost"] and not stays:
            if case.kind == "code" and case.function in rules.GIVES_BACK:
                kinds["stays with the driver"] += 1
            else:
                found.append(f"{end['lost']} bytes are lost")
        said = [line for line in err if not line.startswith("standin: ")]
        # A pool that steps aside says so, in a line of its own.
        if len(said) > self.base[case.policy]["lines"] + (rules.POOLS if case.kind == "refusal" else 1):
            found.append(f"{len(said)} lines on standard error, the last: {said[-1][:200]}")
        seen = [line for line in err if line.startswith("standin: ")]
        if seen and case.kind != "sticky":
            found.append(seen[0])
        return kinds, found

    @staticmethod
    def judge_call(case, name, result, struck):
        """One call of the process that went otherwise than without faults."""
        if case.kind == "delay":
            return ("served", None) if result == 0 or name in rules.MAY_FAIL else ("later", f"{name} gave {result} after a delay in {case.function}")
        if case.kind == "refusal" and (name == case.function or result == 0):
            return "passed on" if result else "served", None
        if case.kind == "refusal" and name in rules.NEEDS_MAPPINGS and result in (case.code, rules.OUT_OF_MEMORY):
            return "passed on", None
        if case.kind == "refusal":
            return "out of memory", f"{name} gave {result} because {case.function} is refused"
        return rules.judge_call(case.function, case.code, name, result, struck)

    def one(self, case):
        """Runs and judges a case."""
        parts = "dad" if case.function in rules.MAKES_STAY else None
        return case, *self.judge(case, *self.run(case.policy, case.mode, case.fault(), case.trace, parts=parts))

    def sweep(self):
        """All cases, or as many as the time allows, in random order."""
        for policy in self.options.policies:
            self.baseline(policy)
        cases = list(self.cases())
        self.random.shuffle(cases)
        if self.options.only:
            cases = [case for case in cases if re.search(self.options.only, f"{case.kind} {case.policy} {case.fault()}")]
        started, done = time.monotonic(), 0
        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            waiting = iter(cases)
            running = set()
            while True:
                while len(running) < 2 * self.options.jobs and not self.is_over(started):
                    case = next(waiting, None)
                    if case is None:
                        break
                    running.add(pool.submit(self.one, case))
                if not running:
                    break
                finished, running = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
                for future in finished:
                    self.add(*future.result())
                    done += 1
        print(f"faults: {done} of {len(cases)} cases under {' '.join(self.options.policies)}, seed {self.options.seed}, "
              f"{time.monotonic() - started:.0f} s")
        return done, len(cases)

    def is_over(self, started):
        """Whether the time is over."""
        return self.options.seconds and time.monotonic() - started > self.options.seconds

    def add(self, case, kinds, found):
        """Takes an outcome in."""
        row = self.rows[case.function if case.kind in ("code", "delay") else f"{case.kind}: {case.function}"]
        row["cases"] += 1
        row["failed"] += bool(found)
        for kind in kinds:
            row[kind] += 1
        if found:
            self.bad.append((case.command(), "; ".join(list(dict.fromkeys(found))[:3])))
            if len(self.bad) <= self.options.shown:
                print(f"FAIL {self.bad[-1][0]}\n     {self.bad[-1][1]}", flush=True)

    def not_reached(self):
        """Functions of the shim that the workload never made it call."""
        called = set()
        for base in self.base.values():
            called |= set(base["counts"])
        return [name for name in functions() if name not in called]

    def table(self):
        """The outcomes by function, as Markdown."""
        columns = ("passed on", "served", "out of memory", "unseen", "stays with the driver", "failed")
        lines = [f"| Function | Runs | {' | '.join(columns)} |".replace("failed", "broken promises"), "|---" + "|---:" * (len(columns) + 1) + "|"]
        for function, row in sorted(self.rows.items()):
            lines.append(f"| `{function}` | {row['cases']} | {' | '.join(str(row[column]) for column in columns)} |")
        total = Counter()
        for row in self.rows.values():
            total.update(row)
        lines.append(f"| all | {total['cases']} | {' | '.join(str(total[column]) for column in columns)} |")
        return lines


def commit():
    """What is checked out, as git names it."""
    words = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    return subprocess.run(words, text=True, capture_output=True, check=False).stdout.strip() or "unknown"


def write_table(sweep, done, of):
    """Puts the table into docs/reliability.md; `of`: the commit that was built."""
    path = ROOT / "docs" / "reliability.md"
    text = path.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    lines = [f"{done} runs, seed {sweep.options.seed}, policies {', '.join(sweep.options.policies)}, commit {of}.", "", *sweep.table(), ""]
    missing = sweep.not_reached()
    if missing:
        lines += [f"Not called by the workload: {', '.join(f'`{name}`' for name in missing)}.", ""]
    path.write_text(f"{before}{BEGIN}\n" + "\n".join(lines) + f"{END}{after}", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shim", required=True)
    parser.add_argument("--libraries", required=True, help="folder with the stand-in libcuda.so.1")
    parser.add_argument("--workload", required=True)
    parser.add_argument("--seconds", type=float, help="a random part of the sweep, for about this long; without it all")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--timeout", type=float, default=30, help="seconds after which a run hangs (default 30)")
    parser.add_argument("--shown", type=int, default=40, help="failures shown at most (default 40)")
    parser.add_argument("--only", help="cases whose description this expression is found in")
    parser.add_argument("--doc", action="store_true", help="write the table into docs/reliability.md")
    parser.add_argument("--again", help="one case, as a failure names it")
    parser.add_argument("policies", nargs="*", metavar="POLICY", help=f"default: {' '.join(POLICIES)}")
    options = parser.parse_intermixed_args()
    options.policies = options.policies or list(POLICIES)
    for name in ("shim", "libraries", "workload"):
        setattr(options, name, os.path.abspath(getattr(options, name)))
    sweep = Sweep(options)
    if options.again:
        policy, mode, trace, fault = options.again.split(" ", 3)
        sweep.baseline(policy)
        code, out, err = sweep.run(policy, mode, fault, trace == "1")
        print("\n".join([*out, *err, f"exit code {code}"]))
        return 0
    print(f"faults: seed {options.seed}", flush=True)
    of = commit() if options.doc else ""
    done, whole = sweep.sweep()
    print("\n".join(sweep.table()))
    missing = sweep.not_reached()
    print(f"functions of the shim: {len(functions())}, of which the workload does not call {len(missing)}: {' '.join(missing)}")
    if options.doc:
        write_table(sweep, done, of)
    for command, complaint in sweep.bad[:options.shown]:
        print(f"FAIL {command}\n     {complaint}")
    print(f"faults: {'FAILED: ' + str(len(sweep.bad)) if sweep.bad else 'all well'} ({done} of {whole} cases, seed {options.seed})")
    return 1 if sweep.bad else 0


if __name__ == "__main__":
    sys.exit(main())

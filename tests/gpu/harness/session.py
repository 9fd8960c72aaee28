"""One call of gpu-check: its folders, its time budget, its log, its list of results; running a
program natively, under the independent counter, or under the shim."""

import json
import os
import pathlib
import signal
import struct
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass, field

ROOT = pathlib.Path(__file__).resolve().parents[3]
GPU = ROOT / "tests" / "gpu"
FOREIGN = ("GPUSHIM_", "LD_PRELOAD", "PYTORCH_", "XLA_PYTHON_CLIENT_", "TF_GPU_ALLOCATOR")
"""Variables of the caller's that choose an allocator: no run inherits them."""


@dataclass
class Outcome:
    """What one run of a program left behind."""

    code: int
    stdout: str
    stderr: str
    seconds: float
    timed_out: bool = False
    skipped: bool = False
    is_cut_off: bool = False
    """It ran out of the session's time, not of its own."""
    figures: dict = field(default_factory=dict)
    counts: dict = field(default_factory=dict)
    traces: list = field(default_factory=list)
    autopsy: str = ""
    """What was written beside the first trace, of a run with GPUSHIM_AUTOPSY."""
    autopsy_late: float = 0.0
    """Seconds after the end of the program at which that was there."""

    @property
    def ok(self):
        """Whether the program ran to its end and said so."""
        return self.code == 0 and not self.timed_out and not self.skipped


class Session:
    """Everything that sections share."""

    def __init__(self, out, budget, dist):
        self.out = pathlib.Path(out).resolve()
        self.out.mkdir(parents=True, exist_ok=True)
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="gpu-check-"))
        self.dist = pathlib.Path(dist).resolve()
        self.shim = self.dist / "libgpushim.so"
        self.command = self.dist / "gpushim"
        # Compiled Python goes here: nothing is left beside the sources, and packages that were installed
        # without theirs are compiled once and not in each of dozens of runs.
        self.bytecode = {"PYTHONPYCACHEPREFIX": str(self.work / "bytecode")}
        self.started = time.monotonic()
        self.deadline = self.started + budget
        self.section_deadline = self.deadline
        self.results = []
        self.lock = threading.Lock()
        self.log_file = open(self.out / "gpu-check.log", "w", encoding="utf-8")
        (self.out / "tables.md").unlink(missing_ok=True)
        self.number = 0

    def begin(self, limit):
        """A section begins, which may take so many seconds."""
        self.section_deadline = min(self.deadline, time.monotonic() + limit)

    def left(self):
        """Seconds of the budget, and of the section's own limit, that are left."""
        return self.section_deadline - time.monotonic()

    def log(self, text):
        """One paragraph in the log file."""
        with self.lock:
            self.log_file.write(f"[{time.monotonic() - self.started:7.1f}s] {text}\n")
            self.log_file.flush()

    def result(self, section, name, status, detail="", **figures):
        """A line of the final table; shown at once too, so that a cut-off run still tells."""
        detail = " ".join(detail.split())
        row = {"section": section, "name": name, "status": status, "detail": detail, "figures": figures}
        with self.lock:
            self.results.append(row)
            print(f"[{time.monotonic() - self.started:6.1f}s] {status:4} {section}/{name}: {detail}", flush=True)
            (self.out / "results.json").write_text(json.dumps(self.results, indent=1), encoding="utf-8")

    def table(self, title, head, rows):
        """A Markdown table for tables.md: written at once, so that a cut-off run keeps it."""
        lines = [f"## {title}", "", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
        with self.lock:
            with open(self.out / "tables.md", "a", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n\n")

    def folder(self):
        """A fresh folder for one run."""
        with self.lock:
            self.number += 1
            path = self.work / f"run{self.number:03}"
        path.mkdir()
        return path

    def run(self, name, argv, *, shim=False, count=False, env=None, timeout=120, figures=False):
        """Runs a program to its end or its time limit; never raises for what the program does.

        `count` preloads the independent counter instead of the shim; `figures` passes `--json`.
        """
        folder = self.folder()
        allowed, timeout = timeout, min(timeout, self.left() - 5)
        label = f"{name} [{'shim' if shim else 'counted' if count else 'native'}]"
        if timeout < 3:
            self.log(f"{label}: skipped, no time left")
            return Outcome(-1, "", "no time left", 0.0, skipped=True)
        argv = [str(part) for part in argv]
        if figures:
            argv += ["--json", str(folder / "figures.json")]
        full = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
        full |= self.bytecode | (env or {})
        if shim:
            full["LD_PRELOAD"] = str(self.shim)
            full.setdefault("GPUSHIM_TRACE", str(folder / "%p.trace"))
        elif count:
            full["LD_PRELOAD"] = str(self.work / "libcounter.so")
            full["GPUCHECK_COUNTS"] = str(folder / "counts")
        start = time.monotonic()
        timed_out = False
        with open(folder / "stdout", "wb") as out, open(folder / "stderr", "wb") as err:
            try:
                process = subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=full, cwd=folder,
                    start_new_session=True,
                )
            except OSError as error:
                self.log(f"{label}: {error}")
                return Outcome(-1, "", str(error), 0.0)
            try:
                code = process.wait(timeout)
            except subprocess.TimeoutExpired:
                timed_out = True
                os.killpg(process.pid, signal.SIGKILL)
                code = process.wait()
        outcome = Outcome(
            code,
            (folder / "stdout").read_text(errors="replace"),
            (folder / "stderr").read_text(errors="replace"),
            time.monotonic() - start,
            timed_out,
            is_cut_off=timed_out and timeout < allowed,
            traces=sorted(folder.glob("*.trace")),
        )
        try:
            outcome.figures = json.loads((folder / "figures.json").read_text())
        except (OSError, ValueError):
            pass
        outcome.counts = read_counts(folder / "counts")
        if "GPUSHIM_AUTOPSY" in full and shim:
            outcome.autopsy, outcome.autopsy_late = autopsy_in(folder, start + outcome.seconds)
        self.log(
            f"{label}: code {code}{' (timed out)' if timed_out else ''}, {outcome.seconds:.1f} s: {' '.join(argv)}\n"
            f"--- stdout (end)\n{outcome.stdout[-1500:]}\n--- stderr (end)\n{outcome.stderr[-3000:]}"
        )
        return outcome


def autopsy_in(folder, ended):
    """The text of the first autopsy in a folder, which may outlive the program, and how long after its end it was there."""
    while True:
        for path in sorted(folder.glob("*.autopsy")):
            if path.stat().st_size:
                written = path.stat().st_mtime - time.time() + time.monotonic()
                return path.read_text(encoding="utf-8", errors="replace"), written - ended
        if time.monotonic() > ended + 3:
            return "", 0.0
        time.sleep(0.01)


def read_counts(path):
    """The counter's file: name -> (succeeded, failed), calls that were made only."""
    try:
        data = path.read_bytes()
    except OSError:
        return {}
    counts = {}
    for name, succeeded, failed in struct.iter_unpack("<32sQQ", data[: len(data) // 48 * 48]):
        if succeeded or failed:
            counts[name.split(b"\0")[0].decode()] = (succeeded, failed)
    return counts

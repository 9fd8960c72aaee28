"""Section `reports`: programs after public reports, recorded anew, and what the command says of each (tests/gpu/reports)."""

import importlib.util
import json
import os
import re
import subprocess

from .jobs import together
from .session import GPU

FOLDER = GPU / "reports"
AT_A_TIME = 6
SECONDS = 100


def judge():
    """The judge, as a module."""
    spec = importlib.util.spec_from_file_location("judge", FOLDER / "judge.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def missing(program):
    """A package that the program imports and that is not here."""
    names = re.findall(r"^(?:import|from) (\w+)", program.read_text(encoding="utf-8"), re.MULTILINE)
    return next((name for name in names if importlib.util.find_spec(name) is None), None)


def check(session, program, truth, wrong):
    lacking = missing(program)
    if lacking:
        session.result("reports", program.stem, "SKIP", f"no {lacking}")
        return
    trace = session.folder() / f"{program.stem}.trace"
    run = [str(session.command), "run", "--trace", str(trace), "python3", str(program)]
    plain = {key: value for key, value in os.environ.items() if not key.startswith("GPUSHIM_")}
    ran = subprocess.run(run, capture_output=True, text=True, timeout=SECONDS, env=plain)
    if ran.returncode:
        session.result("reports", program.stem, "FAIL", f"exit code {ran.returncode}: {ran.stderr[-200:]}")
        return
    asked = [str(session.command), "report", "--format", "json", str(trace)]
    said = subprocess.run(asked, capture_output=True, text=True, timeout=SECONDS)
    differs = wrong(json.loads(said.stdout)["results"][0]["findings"], truth)
    session.result("reports", program.stem, "FAIL" if differs else "PASS", differs or "")


def run(session, built):
    del built
    module = judge()
    expected = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
    checks = {}
    for program in sorted(FOLDER.glob("[0-9]*.py")):
        truth = expected[program.stem.split("_")[0]]
        checks[program.stem] = lambda program=program, truth=truth: check(session, program, truth, module.wrong)
    together(session, "reports", checks, AT_A_TIME)

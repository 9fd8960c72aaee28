"""Runs programs under gpushim on the stand-in driver, and reads what they tell."""

import json
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

import gpushim

HERE = pathlib.Path(__file__).resolve().parent
QUIET = {"DO_NOT_TRACK": "1", "MLFLOW_DISABLE_TELEMETRY": "true", "WANDB_ERROR_REPORTING": "false", "HF_HUB_OFFLINE": "1", "RAY_USAGE_STATS_ENABLED": "0"}
"""Variables with which no library asks its maker's servers."""
LIMIT = 120
"""Seconds that one program may run."""


class Done:
    """A program that ended: what it told, what it wrote to stderr, its trace."""

    def __init__(self, output, errors, trace):
        told = [line[len("FOUND ") :] for line in output.splitlines() if line.startswith("FOUND ")]
        self.found = json.loads(told[-1]) if told else None
        self.output, self.errors, self.trace = output, errors, trace

    def names(self, kind):
        """The names of events of a kind in the trace."""
        return [one["name"] for one in gpushim.load(self.trace).events("list") if one["kind"] == kind]

    def count(self, kind):
        return sum(one["kind"] == kind for one in gpushim.load(self.trace).events("list"))


@pytest.fixture
def program(tmp_path):
    """Runs a program, under gpushim unless told otherwise."""

    def run(text, preload=True, **variables):
        trace = tmp_path / "program.trace"
        paths = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "GPUSHIM_TRACE": str(trace), "HOME": str(tmp_path), **QUIET, **variables}
        argv = [sys.executable, "-c", textwrap.dedent(text)]
        argv = [gpushim.command(), "run", "--quiet", "--pool", "--", *argv] if preload else argv
        done = subprocess.run(argv, env=env, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=LIMIT)
        assert done.returncode == 0, done.stderr[-3000:]
        return Done(done.stdout, done.stderr, trace)

    return run

#!/usr/bin/env python3
"""Tests what gpushim gives to other programs: callbacks, loggers, notebooks, metrics, the GitHub Action, recipes of packages.

    tests/integrations/run.py --target DIR --dist DIR --standin DIR [--packages DIR] [--python FILE]

The libraries come from PyPI, into a virtual environment under the target folder. `--python` names another environment, as
one with PyTorch and Lightning, which are too large to install here. Prints what was skipped, and why. Exit code: 0 all well,
1 something failed, 3 there is no environment.
"""

import argparse
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE.parent / "clients"))
from run import environment


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, required in (("target", True), ("dist", True), ("standin", False), ("packages", False)):
        parser.add_argument(f"--{name}", type=lambda text: pathlib.Path(text).resolve(), required=required)
    parser.add_argument("--python", type=pathlib.Path)
    options, more = parser.parse_known_args()
    python = options.python
    if python is None:
        python, reason = environment(options.target, "integrations", "../integrations/requirements.txt")
        if python is None:
            print(f"no environment for the integrations: {reason}")
            return 3
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("GPUSHIM_", "STANDIN_", "LD_", "PYTHON"))}
    env = {**variables, "PATH": f"{options.dist}:{variables['PATH']}", "PYTHONPATH": str(ROOT / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
    if options.standin:
        env.update(LD_LIBRARY_PATH=str(options.standin), STANDIN_MEMORY="1G")
    if options.packages:
        env["INTEGRATIONS_PACKAGES"] = str(options.packages)
    failed = not types_hold(python, env)
    tests = [python, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "--rootdir", HERE, HERE, *more]
    failed |= subprocess.run([str(part) for part in tests], env=env).returncode != 0
    return int(failed)


def types_hold(python, env):
    """Whether mypy finds nothing in the Python package; also true where it is not installed."""
    if subprocess.run([str(python), "-c", "import mypy"], env=env, stderr=subprocess.DEVNULL).returncode:
        print("skip the types of the Python package: mypy is not installed")
        return True
    argv = [str(python), "-m", "mypy", "--strict", "--cache-dir", os.devnull, str(ROOT / "python/gpushim")]
    return subprocess.run(argv, env=env).returncode == 0


if __name__ == "__main__":
    sys.exit(main())

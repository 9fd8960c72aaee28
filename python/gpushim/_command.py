"""The command ``gpushim``: where it is, and what it answers."""

import json
import os
import shutil
import subprocess
import sysconfig
import warnings
from typing import Any, Dict, List, Sequence


class GpushimError(Exception):
    """What the command said it could not do, or why it could not be asked."""


def command() -> str:
    """The path of the command: beside this package, or of this Python's own scripts, or on the PATH.

    Raises GpushimError if there is none.
    """
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "gpushim")
    for path in (beside, os.path.join(sysconfig.get_path("scripts"), "gpushim")):
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    found = shutil.which("gpushim")
    if found is None:
        raise GpushimError("the command gpushim is neither beside this package nor on the PATH; install it (pip install gpushim)")
    return found


def run(arguments: Sequence[str]) -> "subprocess.CompletedProcess[bytes]":
    """Runs the command to its end, not under gpushim itself.

    Raises GpushimError with what it said if it failed and printed nothing to go on with; warns if it printed something
    all the same.
    """
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run(
        [command(), *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    # 0: nothing found, 1: something found, 2: an error, also beside an answer.
    if done.returncode not in (0, 1):
        said = done.stderr.decode(errors="replace").strip()
        said = said or f"gpushim {' '.join(arguments[:1])} ended with exit code {done.returncode}"
        if not done.stdout:
            raise GpushimError(said)
        warnings.warn(said, RuntimeWarning, stacklevel=4)
    return done


def ask(subcommand: str, arguments: Sequence[str]) -> List[Dict[str, Any]]:
    """The results of a subcommand, as docs/json.md describes them; at least one.

    Raises GpushimError if there is none.
    """
    done = run([subcommand, "--format", "json", *arguments])
    try:
        results = json.loads(done.stdout.decode())["results"]
    except (ValueError, KeyError, TypeError) as error:
        raise GpushimError(f"gpushim {subcommand} did not print its JSON: {error}") from error
    if not isinstance(results, list) or not results:
        said = done.stderr.decode(errors="replace").strip()
        raise GpushimError(said or f"gpushim {subcommand} gave no result")
    return results

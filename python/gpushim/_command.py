"""The command ``gpushim``: where it is, and what it answers."""

import json
import os
import shutil
import subprocess
import sysconfig
import warnings
from typing import Any, Dict, List, Sequence, Tuple


class GpushimError(Exception):
    """What the command said it could not do, or why it could not be asked."""


def command() -> str:
    """The path of the command: beside this package, or of this Python's own scripts, or on the PATH.

    Raises GpushimError if there is none.
    """
    package = os.path.dirname(os.path.abspath(__file__))
    folders = [
        os.path.join(package, "bin"),
        # Where `pip install --target` puts scripts.
        os.path.join(os.path.dirname(package), "bin"),
        sysconfig.get_path("scripts"),
        sysconfig.get_path("scripts", "posix_user"),
    ]
    for folder in folders:
        path = os.path.join(folder, "gpushim")
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    found = shutil.which("gpushim")
    if found is None:
        raise GpushimError("the command gpushim is neither beside this package nor on the PATH; install it (pip install gpushim)")
    return found


def run(arguments: Sequence[str]) -> bytes:
    """What the command prints; not under gpushim itself.

    Raises GpushimError with what it said if it failed and printed nothing to go on with; warns if it printed something
    all the same.
    """
    done, said = _finished(arguments)
    if said and not done:
        raise GpushimError(said)
    _warn(said)
    return done


def ask(subcommand: str, arguments: Sequence[str]) -> List[Dict[str, Any]]:
    """The results of a subcommand, as docs/json.md describes them; at least one.

    Raises GpushimError if there is none; warns of what was damaged otherwise.
    """
    done, said = _finished([subcommand, "--format", "json", *arguments])
    try:
        results = json.loads(done.decode())["results"] if done else []
    except (ValueError, KeyError, TypeError) as error:
        raise GpushimError(f"gpushim {subcommand} did not print its JSON: {error}") from error
    if not isinstance(results, list) or not results:
        raise GpushimError(said or f"gpushim {subcommand} gave no result")
    _warn(said)
    return results


def _finished(arguments: Sequence[str]) -> Tuple[bytes, str]:
    """Standard output, and what went wrong; empty if nothing did."""
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run(
        [command(), *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    # 0: nothing found, 1: something found, 2: an error, also beside an answer.
    if done.returncode in (0, 1):
        return done.stdout, ""
    said = done.stderr.decode(errors="replace").strip()
    if said.startswith("gpushim: "):
        said = said[len("gpushim: ") :]
    return done.stdout, said or f"gpushim {arguments[0]} ended with exit code {done.returncode}"


def _warn(said: str) -> None:
    if said:
        warnings.warn(said, RuntimeWarning, stacklevel=4)

"""GPU memory of this process, and of recorded runs, by gpushim.

    gpushim run python train.py          # in a shell: records the run in gpushim-HOST-PID.trace

    import gpushim
    gpushim.load("gpushim-host-4711.trace").findings     # what stands out in it

Within a process that gpushim is preloaded into (``gpushim run`` does that), `range`, `mark`, `owners`, `pause`, `record`,
`reset_peak`, `usage` and `stats` act on its own recording; elsewhere they do nothing, at hardly any cost.
"""

from typing import Any

from ._command import GpushimError, command
from ._process import (
    Stats,
    Usage,
    is_preloaded,
    is_recording,
    library_version,
    mark,
    owners,
    pause,
    range,
    record,
    reset_peak,
    stats,
    usage,
)
from ._recording import CallSite, Finding, Findings, Function, Recording, load

__all__ = [
    "CallSite",
    "Finding",
    "Findings",
    "Function",
    "GpushimError",
    "Recording",
    "Stats",
    "Usage",
    "command",
    "is_preloaded",
    "is_recording",
    "library_version",
    "load",
    "mark",
    "owners",
    "pause",
    "range",
    "record",
    "reset_peak",
    "stats",
    "usage",
]


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext gpushim``: the cell magic ``%%gpushim``."""
    from .integrations import jupyter

    jupyter.load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """``%unload_ext gpushim``."""
    from .integrations import jupyter

    jupyter.unload(shell)


def __getattr__(name: str) -> str:
    # Metadata takes milliseconds to read, and few ask for it.
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("gpushim")
        except PackageNotFoundError:
            return "unknown"
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

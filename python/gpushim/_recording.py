"""Recorded runs: what the command says of them, as objects and tables."""

import os
import shutil
import tempfile
from dataclasses import dataclass, field, fields
from typing import Any, Dict, List, Optional, Sequence, Tuple, Type, TypeVar, Union

from . import _command, _html, _tables

_T = TypeVar("_T")


def _known(kind: Type[_T], found: Dict[str, Any]) -> Dict[str, Any]:
    """The fields of a dataclass that JSON has: a newer command may add others."""
    names = {one.name for one in fields(kind)}  # type: ignore[arg-type]
    return {name: value for name, value in found.items() if name in names}


@dataclass(frozen=True)
class Function:
    """A function of the recorded program."""

    name: str
    file: Optional[str] = None
    line: Optional[int] = None
    module: Optional[str] = None
    kind: Optional[str] = None

    def __str__(self) -> str:
        if self.file is None:
            return self.name
        return f"{self.name} at {self.file}" + (f":{self.line}" if self.line is not None else "")

    @classmethod
    def of(cls, found: Optional[Dict[str, Any]]) -> "Optional[Function]":
        """From JSON."""
        return None if found is None else cls(**_known(cls, found))


@dataclass(frozen=True)
class CallSite:
    """The function behind an allocation, and the way to it."""

    function: Optional[Function] = None
    is_own: bool = False
    called_by: Optional[Function] = None
    operator: Optional[str] = None
    frames: Tuple[Function, ...] = ()
    frames_hidden: int = 0
    ranges: Tuple[str, ...] = ()

    def __str__(self) -> str:
        return str(self.function) if self.function is not None else "no stack recorded"

    @classmethod
    def of(cls, found: Optional[Dict[str, Any]]) -> "Optional[CallSite]":
        """From JSON."""
        if found is None:
            return None
        parts = _known(cls, found)
        parts["function"] = Function.of(found.get("function"))
        parts["called_by"] = Function.of(found.get("called_by"))
        frames = [Function.of(one) for one in found.get("frames", ())]
        parts["frames"] = tuple(one for one in frames if one is not None)
        parts["ranges"] = tuple(found.get("ranges", ()))
        return cls(**parts)


@dataclass(frozen=True)
class Finding:
    """Something that stands out in a run, with its place and its fix."""

    kind: str
    of: str
    text: str
    bytes: int = 0
    per_iteration: Optional[float] = None
    site: Optional[CallSite] = None
    kept_by: Optional[str] = None
    sure: bool = False
    why: str = ""
    fix: Optional[str] = None
    next: str = ""
    trace: str = field(default="", compare=False)

    def __str__(self) -> str:
        lines = [self.text]
        if self.site is not None and self.site.function is not None:
            lines.append(f"  at {self.site}")
        if self.kept_by:
            lines.append(f"  kept by {self.kept_by}")
        if self.fix:
            lines.append(f"  fix: {self.fix}")
        if self.next:
            lines.append(f"  next: {self.next}")
        return "\n".join(lines)

    @classmethod
    def from_json(cls, found: Dict[str, Any], trace: str = "") -> "Finding":
        """From the JSON of ``gpushim report``."""
        parts = _known(cls, found)
        parts["site"] = CallSite.of(found.get("site"))
        parts["trace"] = trace
        return cls(**parts)


class Findings(List[Finding]):
    """Findings, the most important first; a table in a notebook."""

    def __str__(self) -> str:
        return "\n".join(str(one) for one in self) or "nothing stands out"

    def _repr_html_(self) -> str:
        return _html.findings(self)


PathLike = Union[str, "os.PathLike[str]"]


def load(path: PathLike) -> "Recording":
    """A recorded run: a trace of gpushim, or a PyTorch memory snapshot, or what else the command reads.

    Raises FileNotFoundError if there is no such file. Whether it can be read shows at the first question.
    """
    return Recording(path)


class Recording:
    """A recorded run. Each question is answered by the command, which reads the file; nothing of it is kept in memory here,
    but the report.

    Tables are pandas or polars DataFrames, or lists of dicts: ``to`` is "pandas", "polars" or "list"; by default the
    first of pandas and polars that is installed.
    """

    def __init__(self, path: PathLike) -> None:
        #: Where the file is, absolute.
        self.path: str = os.path.abspath(os.fspath(path))
        self._report: Optional[Dict[str, Any]] = None
        if not os.path.exists(self.path):
            raise FileNotFoundError(f"no such recording: {self.path}")

    def __repr__(self) -> str:
        return f"gpushim.load({self.path!r})"

    def ask(self, subcommand: str, *arguments: str) -> Dict[str, Any]:
        """What a subcommand says of this recording, as JSON (docs/json.md): ``ask("growth", "--top", "30")``.

        Raises GpushimError if it says nothing.
        """
        return _command.ask(subcommand, [*arguments, self.path])[0]

    @property
    def report(self) -> Dict[str, Any]:
        """All that ``gpushim report`` says, as JSON."""
        if self._report is None:
            self._report = self.ask("report")
        return self._report

    @property
    def findings(self) -> Findings:
        """What stands out, the most important first."""
        return Findings(Finding.from_json(one, self.path) for one in self.report["findings"])

    @property
    def facts(self) -> List[Tuple[str, str]]:
        """Facts about the process, keys and values; a key may come several times."""
        return [(key, value) for key, value in self.report["facts"]]

    def events(self, to: Optional[str] = None) -> Any:
        """All events, one a row: the columns of docs/export.md."""
        kind = _tables.kind(to)
        if kind != "list" and _tables.reads_parquet(kind):
            folder = tempfile.mkdtemp(prefix="gpushim-")
            try:
                _command.run(["export", "--to", "parquet", "-o", folder, self.path])
                found = [os.path.join(at, name) for at, _, names in os.walk(os.path.join(folder, "events")) for name in names if name.endswith(".parquet")]
                if len(found) != 1:
                    raise _command.GpushimError(f"gpushim export made {len(found)} files of {self.path}")
                return _tables.of_parquet(kind, found[0])
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        lines = _command.run(["export", "--to", "json", self.path])
        return _tables.of_rows(kind, _tables.rows_of_export(lines))

    def live(self, to: Optional[str] = None, *, of: Optional[str] = None, device: Optional[int] = None, top: int = 1000) -> Any:
        """What is live at the end, by the stack that allocated it, the most bytes first.

        ``of``: tensors, memory, host or managed; by default tensors if there are any.
        """
        return self._holders("end", to, of, device, top)

    def peak(
        self,
        to: Optional[str] = None,
        *,
        at: Optional[float] = None,
        of: Optional[str] = None,
        device: Optional[int] = None,
        top: int = 1000,
    ) -> Any:
        """What was live when most was in use, or ``at`` seconds after the start, by stack, the most bytes first."""
        return self._holders(None if at is None else repr(float(at)), to, of, device, top)

    def _holders(self, at: Optional[str], to: Optional[str], of: Optional[str], device: Optional[int], top: int) -> Any:
        kind = _tables.kind(to)
        arguments = ["--top", str(top), *_selection(of, device)]
        if at is not None:
            arguments += ["--at", at]
        holders = self.ask("peak", *arguments)["holders"]
        return _tables.of_rows(kind, [_tables.holder(one) for one in holders], _tables.HOLDER)

    def timeline(self, to: Optional[str] = None, *, of: Optional[str] = None, device: Optional[int] = None) -> Any:
        """Memory over the whole run, in about a thousand steps of time, of each device."""
        kind = _tables.kind(to)
        return _tables.of_rows(kind, _tables.points(self.ask("timeline", *_selection(of, device))), ("ns", "device"))

    def _repr_html_(self) -> str:
        return _html.recording(self.path, self.findings, self.report)


def _selection(of: Optional[str], device: Optional[int]) -> Sequence[str]:
    arguments: List[str] = []
    if of is not None:
        arguments += ["--of", of]
    if device is not None:
        arguments += ["--gpu", str(device)]
    return arguments

"""A pytest plugin: limits and baselines for the GPU memory of tests.

    @pytest.mark.gpu_memory(max_peak="2 GiB", leaks=False)
    def test_forward(): ...

    gpushim run -- pytest                        # marked tests are measured; elsewhere they are skipped
    gpushim run -- pytest --gpu-memory           # every test is measured, and listed at the end
    gpushim run -- pytest --gpu-memory-baseline gpu-memory.json --gpu-memory-update

What is measured is the test's own: its peak is the most that was in use while it ran, less what was in use when it
began; what it leaves is what is in use at its end, after a garbage collection, less what was in use when it began.
Fixtures are not part of it. Tensors are measured if the test made any, device memory if not.
"""

import gc
import json
import os
import re
from typing import Any, Dict, Generator, List, NamedTuple, Optional, Tuple, Union

import pytest

import gpushim
from gpushim._html import size as shown
from gpushim._process import DEVICES

_MARK = "gpu_memory"
_PROPERTY = "gpu_memory"
_RUN = "gpushim is not preloaded: run the tests by `gpushim run -- pytest`"
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def parse_size(value: Union[int, str]) -> int:
    """Bytes of a number, or of a size like "512M", "1.5 GiB" or "2g".

    Raises ValueError for anything else.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([bkmgt]?)(?:i?b)?\s*", value, re.IGNORECASE) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"{value!r} is no size: write a number of bytes, or a size like '512M' or '2 GiB'")
    return int(float(found[1]) * _UNITS[found[2].lower()])


class Limits(NamedTuple):
    """What a test may use, bytes; None: anything."""

    max_peak: Optional[int]
    max_left: Optional[int]


def limits_of(item: pytest.Item) -> Optional[Limits]:
    """The limits that the closest mark of a test sets; None if it has no mark.

    Raises pytest.UsageError for arguments that the mark does not take.
    """
    mark = item.get_closest_marker(_MARK)
    if mark is None:
        return None
    unknown = [*(repr(one) for one in mark.args), *(name for name in mark.kwargs if name not in ("max_peak", "leaks"))]
    if unknown:
        raise pytest.UsageError(f"{item.nodeid}: gpu_memory takes max_peak=SIZE and leaks=False, and not {', '.join(unknown)}")
    try:
        peak, leaks = mark.kwargs.get("max_peak"), mark.kwargs.get("leaks", True)
        max_peak = None if peak is None else parse_size(peak)
        max_left = None if leaks is True else 0 if leaks is False else parse_size(leaks)
    except ValueError as error:
        raise pytest.UsageError(f"{item.nodeid}: gpu_memory: {error}") from None
    return Limits(max_peak, max_left)


class Measured(NamedTuple):
    """What a test used, bytes, on the device where its peak was highest."""

    of: str
    peak: int
    left: int


def _in_use() -> Dict[Tuple[str, int], Tuple[int, int]]:
    used = (gpushim.usage(kind, device) for kind in ("tensors", "device") for device in range(DEVICES))
    return {(one.kind, one.device): (one.in_use, one.peak) for one in used if one is not None}


def _difference(before: Dict[Tuple[str, int], Tuple[int, int]], after: Dict[Tuple[str, int], Tuple[int, int]]) -> Measured:
    changes = {where: (peak - before[where][0], now - before[where][0]) for where, (now, peak) in after.items()}

    def has_any(kind: str) -> bool:
        return any(peak > 0 or left for (one, _), (peak, left) in changes.items() if one == kind)

    of = "tensors" if has_any("tensors") else "device"
    ours = [change for (kind, _), change in changes.items() if kind == of]
    return Measured(of, max(0, *(peak for peak, _ in ours)), max(0, *(left for _, left in ours)))


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options."""
    group = parser.getgroup("gpushim", "GPU memory, by gpushim")
    group.addoption("--gpu-memory", action="store_true", help="measure the GPU memory of all tests, not only of marked ones")
    group.addoption(
        "--gpu-memory-baseline",
        metavar="FILE",
        help="measure all tests, and fail those that use more than FILE (JSON) says they did",
    )
    group.addoption("--gpu-memory-update", action="store_true", help="write what tests use into the baseline")
    group.addoption(
        "--gpu-memory-tolerance",
        metavar="PERCENT",
        type=float,
        default=5.0,
        help="how much more than in the baseline is allowed, and 1 MiB in any case (default: %(default)s)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Registers the mark, and the plugin itself."""
    config.addinivalue_line(
        "markers",
        'gpu_memory(max_peak="2 GiB", leaks=False): fail if the test uses more GPU memory, or leaves any in use; '
        "leaks may also be the size that it may leave (needs `gpushim run -- pytest`)",
    )
    if config.getoption("gpu_memory_update") and not config.getoption("gpu_memory_baseline"):
        raise pytest.UsageError("--gpu-memory-update needs --gpu-memory-baseline FILE")
    config.pluginmanager.register(_Plugin(config), "gpushim-memory")


class _Plugin:
    """One session."""

    def __init__(self, config: pytest.Config) -> None:
        self.path: Optional[str] = config.getoption("gpu_memory_baseline")
        self.is_update: bool = config.getoption("gpu_memory_update")
        self.measures_all: bool = config.getoption("gpu_memory") or self.path is not None
        self.tolerance: float = config.getoption("gpu_memory_tolerance") / 100
        self.is_worker = hasattr(config, "workerinput")
        self.baseline: Dict[str, Dict[str, Any]] = self._read()
        self.measured: Dict[str, Dict[str, Any]] = {}
        self.skipped = 0

    def _read(self) -> Dict[str, Dict[str, Any]]:
        if self.path is None:
            return {}
        try:
            with open(self.path, encoding="utf-8") as file:
                tests = json.load(file)["tests"]
                return {name: {"peak": int(one["peak"]), "of": str(one["of"])} for name, one in tests.items()}
        except FileNotFoundError:
            if self.is_update:
                return {}
            raise pytest.UsageError(f"there is no baseline {self.path} yet; make it with --gpu-memory-update") from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise pytest.UsageError(f"failed to read the baseline {self.path}: {error}") from None

    def pytest_collection_modifyitems(self, items: List[pytest.Item]) -> None:
        """Refuses wrong marks before any test runs."""
        for item in items:
            limits_of(item)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skips tests with limits that cannot be measured."""
        if item.get_closest_marker(_MARK) is not None and not gpushim.is_preloaded():
            self.skipped += 1
            pytest.skip(_RUN)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, None]:
        """Measures a test."""
        limits = limits_of(item)
        if not gpushim.is_preloaded() or (limits is None and not self.measures_all):
            yield
            return
        gc.collect()
        gpushim.reset_peak()
        before = _in_use()
        with gpushim.range(item.nodeid):
            outcome = yield
        after = _in_use()
        found = _difference(before, after)
        if found.left > 0:
            gc.collect()
            # A peak is of the test, and not of what its objects did when they were collected.
            settled = {where: (now, after[where][1]) for where, (now, _) in _in_use().items()}
            found = _difference(before, settled)
        figures: Dict[str, Any] = dict(found._asdict())
        if limits is not None and limits.max_peak is not None:
            figures["limit"] = limits.max_peak
        # An exception holds what the test's functions had.
        figures["problems"] = [] if outcome.excinfo else self._problems(item.nodeid, found, limits)
        item.user_properties.append((_PROPERTY, figures))

    def _problems(self, name: str, found: Measured, limits: Optional[Limits]) -> List[str]:
        problems = []
        if limits is not None and limits.max_peak is not None and found.peak > limits.max_peak:
            problems.append(
                f"the test used {shown(found.peak)} of {_words(found.of)} at its peak, more than max_peak={shown(limits.max_peak)}"
            )
        if limits is not None and limits.max_left is not None and found.left > limits.max_left:
            allowed = "" if limits.max_left == 0 else f", more than {shown(limits.max_left)}"
            problems.append(f"the test left {shown(found.left)} of {_words(found.of)} in use{allowed}")
        known = self.baseline.get(name)
        if known is not None and not self.is_update and known["of"] == found.of:
            most = known["peak"] + max(known["peak"] * self.tolerance, 1 << 20)
            if found.peak > most:
                problems.append(
                    f"the test used {shown(found.peak)} of {_words(found.of)} at its peak, and in the baseline {shown(known['peak'])}; "
                    "if that is right, update it with --gpu-memory-update"
                )
        return problems

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: "pytest.CallInfo[None]") -> Generator[None, Any, None]:
        """Fails a test that passed, and used too much."""
        outcome = yield
        report = outcome.get_result()
        if call.when == "call" and report.outcome == "passed":
            problems = _figures(report).get("problems")
            if problems:
                report.outcome = "failed"
                report.longrepr = "GPU memory: " + "\n".join(problems)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collects the figures, also those of the processes of pytest-xdist."""
        figures = _figures(report)
        if report.when == "call" and figures:
            self.measured[report.nodeid] = {**figures, "outcome": report.outcome}

    def pytest_sessionfinish(self) -> None:
        """Writes the baseline."""
        if self.path is None or not self.is_update or self.is_worker:
            return
        passed = {name: one for name, one in self.measured.items() if one["outcome"] == "passed"}
        tests = {**self.baseline, **{name: {"peak": one["peak"], "of": one["of"]} for name, one in passed.items()}}
        text = json.dumps({"version": 1, "tests": dict(sorted(tests.items()))}, indent=1)
        new = f"{self.path}.new"
        with open(new, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        os.replace(new, self.path)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """The table."""
        write = terminalreporter.write_line
        if self.measures_all and not self.measured and not gpushim.is_preloaded():
            terminalreporter.section("GPU memory")
            write(f"nothing was measured: {_RUN}")
            return
        if not self.measured:
            return
        terminalreporter.section("GPU memory")
        write(f"{'peak':>11} {'left':>11} {'limit':>11} {'baseline':>11}  test")
        for name, one in sorted(self.measured.items(), key=lambda pair: (-pair[1]["peak"], pair[0])):
            limit, known = one.get("limit"), self.baseline.get(name, {}).get("peak")
            cells = (one["peak"], one["left"] or None, limit, known)
            text = " ".join(f"{'' if cell is None else shown(cell):>11}" for cell in cells)
            write(f"{text}  {name}{'' if one['of'] == 'tensors' else ' (device memory)'}")
        if self.path is not None and self.is_update:
            write(f"wrote the baseline {self.path}")


def _figures(report: pytest.TestReport) -> Dict[str, Any]:
    found = [value for name, value in report.user_properties if name == _PROPERTY]
    return found[-1] if found and isinstance(found[-1], dict) else {}


def _words(of: str) -> str:
    return "tensors" if of == "tensors" else "device memory"

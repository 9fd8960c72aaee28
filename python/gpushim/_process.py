"""This process's own recording, by the functions that libgpushim.so exports where it is preloaded."""

import builtins
import functools
import inspect
import threading
from types import TracebackType
from typing import Any, Callable, NamedTuple, Optional, Tuple, Type, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])

KINDS = ("tensors", "device", "managed", "host")
"""Kinds of memory, by the numbers of include/gpushim.h."""


class Usage(NamedTuple):
    """Bytes of one kind of memory on one device."""

    kind: str
    device: int
    in_use: int
    peak: int


class Stats(NamedTuple):
    """Figures of gpushim's pools, and of all memory that is or was in use."""

    live_blocks: int
    allocated: int
    cached: int
    reserved: int
    held_for_graphs: int
    pools: int
    stream_queues: int
    usage: Tuple[Usage, ...]


class _Library:
    """The functions of the library, or none of them."""

    def __init__(self) -> None:
        import ctypes

        self.is_there = False
        self.push: Callable[[bytes], object] = _nothing_of
        self.pop: Callable[[], object] = _nothing
        self.mark: Callable[[bytes], object] = _nothing_of
        try:
            # The library never waits for the interpreter's lock, so that a call need not give it up.
            names = ctypes.PyDLL(None)
            push, pop, mark = names.gpushim_range_push, names.gpushim_range_pop, names.gpushim_mark
            push.argtypes, push.restype = [ctypes.c_char_p], None
            mark.argtypes, mark.restype = [ctypes.c_char_p], None
            pop.argtypes, pop.restype = [], None
            self.push, self.pop, self.mark = push, pop, mark
            self.pause, self.record = names.gpushim_pause, names.gpushim_record
            self.is_recording, self.reset_peak = names.gpushim_is_recording, names.gpushim_reset_peak
            self.owners = names.gpushim_owners
            for function in (self.pause, self.record, self.reset_peak, self.owners):
                function.argtypes, function.restype = [], None
            number = ctypes.c_ulonglong
            self._usage, self._stats, self._version = names.gpushim_usage, names.gpushim_stats, names.gpushim_version
            self._usage.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.POINTER(number), ctypes.POINTER(number)]
            self._stats.argtypes, self._stats.restype = [ctypes.POINTER(number), ctypes.c_size_t], ctypes.c_size_t
            self._version.argtypes, self._version.restype = [], ctypes.c_char_p
            self._number, self._byref = number, ctypes.byref
            self.is_there = True
        except (AttributeError, OSError):
            # Not preloaded, or an older one: then none of it is used.
            self.push, self.pop, self.mark = _nothing_of, _nothing, _nothing_of

    def usage(self, kind: int, device: int) -> Optional[Tuple[int, int]]:
        in_use, peak = self._number(), self._number()
        if self._usage(kind, device, self._byref(in_use), self._byref(peak)) != 0:
            return None
        return in_use.value, peak.value

    def stats(self) -> Tuple[int, ...]:
        figures = (self._number * 7)()
        self._stats(figures, 7)
        return tuple(figures)

    def version(self) -> str:
        text = self._version()
        return text.decode(errors="replace") if text else ""


def _nothing() -> None:
    pass


def _nothing_of(_: bytes) -> None:
    pass


_known: Optional[_Library] = None
_lock = threading.Lock()


def _library() -> _Library:
    global _known
    if _known is None:
        with _lock:
            if _known is None:
                _known = _Library()
    return _known


def is_preloaded() -> bool:
    """Whether gpushim is preloaded into this process, with all functions that this package calls."""
    return _library().is_there


def library_version() -> Optional[str]:
    """Version, commit and build id of the preloaded library; None if it is not preloaded."""
    library = _library()
    return library.version() if library.is_there else None


class range:
    """A phase of the program, by which the trace tells its allocations apart: a context manager, or a decorator.

        with gpushim.range("forward"):
            loss = model(batch)

    Ranges nest, and end on the thread that they began on. No NVTX is needed, and none is used.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name.encode(errors="replace")

    def __enter__(self) -> "range":
        (_known or _library()).push(self._name)
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], where: Optional[TracebackType]
    ) -> None:
        (_known or _library()).pop()

    def __call__(self, function: _Function) -> _Function:
        """The function, which runs within the range.

        Raises TypeError for coroutines and generators: others run on their thread while they wait.
        """
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError("gpushim.range decorates plain functions only: other code runs while a coroutine or generator waits")

        @functools.wraps(function)
        def within(*arguments: Any, **named: Any) -> Any:
            with self:
                return function(*arguments, **named)

        return within  # type: ignore[return-value]


def mark(name: str) -> None:
    """A moment of the program, in the trace."""
    _library().mark(name.encode(errors="replace"))


class _Until:
    """After a change of whether allocations are recorded: as a context manager, undoes it at its end."""

    __slots__ = ("_before",)

    def __init__(self, before: bool) -> None:
        self._before = before

    def __enter__(self) -> "_Until":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], where: Optional[TracebackType]
    ) -> None:
        _set(self._before)


def _set(recording: bool) -> _Until:
    library = _library()
    if not library.is_there:
        return _Until(recording)
    before = bool(library.is_recording())
    if recording:
        library.record()
    else:
        library.pause()
    return _Until(before)


def pause() -> _Until:
    """From now on allocations are not recorded, until `record`; those from before are followed to their end.

    ``with gpushim.pause():`` records again at the end of the block, if it was recorded before.
    """
    return _set(False)


def record() -> _Until:
    """From now on allocations are recorded again. ``with gpushim.record():`` pauses at the end, if it was paused before."""
    return _set(True)


def is_recording() -> bool:
    """Whether allocations of this process are recorded now."""
    library = _library()
    return library.is_there and bool(library.is_recording())


def reset_peak() -> None:
    """The peaks that `usage` and `stats` tell are those from now on."""
    library = _library()
    if library.is_there:
        library.reset_peak()


def owners() -> None:
    """Has the trace say who keeps each block of device memory: by which name this program reaches it.

    The main thread looks at the program's objects as soon as this function has returned to it. Nothing happens without
    GPUSHIM_OWNERS=auto, which ``gpushim run`` sets.
    """
    library = _library()
    if library.is_there:
        library.owners()


def usage(kind: str = "device", device: int = 0) -> Optional[Usage]:
    """Bytes in use now and at most since `reset_peak`, of a kind (tensors, device, managed, host) on a device.

    None where gpushim is not preloaded. The first call begins to count; it knows what is in use from the trace.
    Raises ValueError for a kind or a device that there cannot be.
    """
    if kind not in KINDS:
        raise ValueError(f"no kind of memory is called {kind!r}: it is one of {', '.join(KINDS)}")
    library = _library()
    if not library.is_there:
        return None
    found = library.usage(KINDS.index(kind), device)
    if found is None:
        raise ValueError(f"there is no device {device}")
    return Usage(kind, device, *found)


DEVICES = 8
"""Devices that are told apart."""


def stats() -> Optional[Stats]:
    """Figures of gpushim's pools, and the usage of each kind of memory on each device that has or had any.

    None where gpushim is not preloaded.
    """
    library = _library()
    if not library.is_there:
        return None
    seen = []
    for kind in KINDS:
        for device in builtins.range(DEVICES):
            one = usage(kind, device)
            if one is not None and (one.in_use or one.peak):
                seen.append(one)
    live_blocks, allocated, cached, reserved, held_for_graphs, pools, stream_queues = library.stats()
    return Stats(live_blocks, allocated, cached, reserved, held_for_graphs, pools, stream_queues, tuple(seen))

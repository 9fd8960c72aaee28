"""Metrics of this process's GPU memory for OpenTelemetry, by the names of its semantic conventions.

    from gpushim.integrations.opentelemetry import register

    register()                                           # after the meter provider is set

`hw.gpu.memory.usage` is the memory in use by this process, `hw.gpu.memory.limit` that of the device. The convention has no
name for the others: `gpushim.memory.peak`, `gpushim.memory.tensors` and `gpushim.memory.cached`.
"""

import ctypes
import uuid
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

import gpushim
from gpushim._process import DEVICES

from ._loop import is_watched


def register(meter: Optional[Any] = None) -> bool:
    """Creates the instruments, of the global meter provider if no meter is given.

    Returns False, and creates none, where gpushim is not preloaded.
    """
    if not is_watched():
        return False
    from opentelemetry.metrics import Observation, get_meter

    # Peaks count from the first question.
    _used("device", 0)
    meter = get_meter("gpushim") if meter is None else meter

    def observed(of: Callable[[int], Optional[int]]) -> Callable[[Any], Iterator[Any]]:
        def observations(_: Any) -> Iterator[Any]:
            for device in _devices():
                value = of(device)
                if value is not None:
                    yield Observation(value, _attributes(device))

        return observations

    def add(kind: str, name: str, of: Callable[[int], Optional[int]], description: str) -> None:
        create = getattr(meter, f"create_observable_{kind}")
        create(name, callbacks=[observed(of)], unit="By", description=description)

    add("up_down_counter", "hw.gpu.memory.usage", lambda device: _used("device", device)[0], "GPU memory used by this process.")
    add("up_down_counter", "hw.gpu.memory.limit", _limit, "Size of the GPU memory.")
    add("up_down_counter", "gpushim.memory.tensors", lambda device: _used("tensors", device)[0], "Memory in a framework's tensors.")
    add("gauge", "gpushim.memory.peak", lambda device: _used("device", device)[1], "Most GPU memory used since the last reset.")
    meter.create_observable_up_down_counter(
        "gpushim.memory.cached", callbacks=[lambda _: [Observation(_cached())]], unit="By", description="Memory that gpushim's pools hold and nobody uses."
    )
    return True


def _used(kind: str, device: int) -> Tuple[int, int]:
    found = gpushim.usage(kind, device)
    return (0, 0) if found is None else (found.in_use, found.peak)


def _cached() -> int:
    stats = gpushim.stats()
    return 0 if stats is None else stats.cached


def _devices() -> Iterator[int]:
    return (device for device in range(DEVICES) if _used("device", device)[1])


def _driver() -> Any:
    """The driver library, which is loaded where a device is in use."""
    return ctypes.CDLL("libcuda.so.1")


def _limit(device: int) -> Optional[int]:
    handle, size = ctypes.c_int(), ctypes.c_size_t()
    cuda = _driver()
    if cuda.cuDeviceGet(ctypes.byref(handle), device) or cuda.cuDeviceTotalMem_v2(ctypes.byref(size), handle):
        return None
    return size.value


_known: Dict[int, Dict[str, str]] = {}


def _attributes(device: int) -> Dict[str, str]:
    """`hw.id` is the UUID: ordinals depend on CUDA_VISIBLE_DEVICES."""
    if device not in _known:
        handle, text, name = ctypes.c_int(), ctypes.create_string_buffer(16), ctypes.create_string_buffer(256)
        cuda = _driver()
        cuda.cuDeviceGet(ctypes.byref(handle), device)
        failed = cuda.cuDeviceGetUuid(text, handle)
        identity = str(device) if failed else f"GPU-{uuid.UUID(bytes=text.raw)}"
        cuda.cuDeviceGetName(name, 256, handle)
        found = {"hw.type": "gpu", "hw.id": identity, "hw.vendor": "NVIDIA", "hw.model": name.value.decode(errors="replace")}
        _known[device] = {key: value for key, value in found.items() if value}
    return _known[device]

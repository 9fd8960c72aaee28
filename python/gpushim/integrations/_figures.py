"""Four figures of a loop's GPU memory: its peak, its growth, what is reserved and unused, what is outside the framework."""

import os
import sys
from typing import Any, Dict, NamedTuple, Optional, Tuple

import gpushim


class Figures(NamedTuple):
    """Bytes on the device of this process. None stands for a figure that is not known."""

    peak: int
    growth_per_step: Optional[float]
    reserved_unused: Optional[int]
    outside_framework: Optional[int]

    def named(self, prefix: str = "gpushim/") -> Dict[str, float]:
        """The known figures by the names that loggers show."""
        return {f"{prefix}{name}_bytes": float(value) for name, value in self._asdict().items() if value is not None}


class Watch:
    """Figures of the steps since they were last asked for."""

    def __init__(self) -> None:
        self._steps = 0
        self._kind: Optional[str] = None
        self._before = 0

    def step_ended(self) -> None:
        """Counts a step. Growth begins at the end of the first one, which makes what stays: states of an optimizer."""
        if self._kind is None:
            self._begin(_in_use(_device()))
        else:
            self._steps += 1

    def figures(self) -> Optional[Figures]:
        """Figures since the last call, or None where gpushim is not preloaded. Peaks begin anew."""
        device = _device()
        used = _in_use(device)
        stats = gpushim.stats()
        if used is None or stats is None:
            return None
        has_grown = self._kind == used.kind and self._steps > 0
        growth = (used.in_use - self._before) / self._steps if has_grown else None
        self._begin(used)
        unused, outside = _beside_tensors(device, stats)
        gpushim.reset_peak()
        return Figures(used.peak, growth, unused, outside)

    def _begin(self, used: Optional[gpushim.Usage]) -> None:
        if used is not None:
            self._kind, self._before, self._steps = used.kind, used.in_use, 0


def _in_use(device: int) -> Optional[gpushim.Usage]:
    """Tensors if there are or were any, device memory otherwise."""
    tensors = gpushim.usage("tensors", device)
    return tensors if tensors is None or tensors.peak else gpushim.usage("device", device)


def _beside_tensors(device: int, stats: gpushim.Stats) -> Tuple[Optional[int], Optional[int]]:
    """Bytes reserved and unused, and bytes outside the framework."""
    tensors, memory = gpushim.usage("tensors", device), gpushim.usage("device", device)
    reserved = _framework_reserved(device)
    if tensors is None or memory is None:
        return None, None
    if reserved is None:
        # Tensors of an allocator that tells nothing lie in memory that is not known.
        return (None if tensors.in_use else stats.reserved - stats.allocated), None
    return max(reserved - tensors.in_use, 0), max(memory.in_use - reserved, 0)


def _torch_cuda() -> Any:
    """PyTorch's module for CUDA, if the program uses it."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda if cuda is not None and cuda.is_initialized() else None


def _device() -> int:
    cuda = _torch_cuda()
    return 0 if cuda is None else int(cuda.current_device())


def _framework_reserved(device: int) -> Optional[int]:
    """Bytes that PyTorch's allocator holds; None if it cannot tell."""
    cuda = _torch_cuda()
    # With elastic segments PyTorch counts addresses, not memory.
    if cuda is None or os.environ.get("GPUSHIM_ELASTIC", "off") != "off":
        return None
    try:
        return int(cuda.memory_reserved(device))
    except RuntimeError:
        # A pluggable allocator has no statistics.
        return None

"""Steps and epochs of a training loop, as callbacks and loggers see them."""

import warnings
from typing import Dict, Optional

import gpushim

from ._figures import Watch

_NOT_PRELOADED = "gpushim is not preloaded: nothing of GPU memory is logged; start the program by `gpushim run`"
_has_said = False


def is_watched() -> bool:
    """Whether gpushim is preloaded. Warns once in a process if it is not."""
    global _has_said
    if gpushim.is_preloaded():
        return True
    if not _has_said:
        _has_said = True
        warnings.warn(_NOT_PRELOADED, RuntimeWarning, stacklevel=2)
    return False


class Loop:
    """A range for each step, a mark for each epoch, and the figures to log."""

    def __init__(self, name: str = "step") -> None:
        self._range = gpushim.range(name)
        self._is_open = False
        self._watch = Watch()
        self.steps = 0
        """Steps that ended since the last figures."""

    def begins(self) -> None:
        """Begins a run of the loop: what the one before left open ends."""
        self.interrupted()
        self._watch, self.steps = Watch(), 0
        if is_watched():
            gpushim.reset_peak()

    def epoch_begins(self, number: int) -> None:
        """Marks an epoch, counted from 0."""
        gpushim.mark(f"epoch {number}")

    def step_begins(self) -> None:
        """Opens the range of a step."""
        self.interrupted()
        self._range.__enter__()
        self._is_open = True

    def step_ends(self) -> None:
        """Closes the range of a step."""
        if self._is_open:
            self.interrupted()
            self._watch.step_ended()
            self.steps += 1

    def interrupted(self) -> None:
        """Closes the range of a step that did not end, as after an exception."""
        if self._is_open:
            self._is_open = False
            self._range.__exit__(None, None, None)

    def figures(self) -> Optional[Dict[str, float]]:
        """Figures since the last call by their names, or None where gpushim is not preloaded."""
        self.steps = 0
        found = self._watch.figures() if is_watched() else None
        return None if found is None else found.named()

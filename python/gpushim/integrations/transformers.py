"""A callback for the Trainer of transformers that logs GPU memory.

    from gpushim.integrations.transformers import watch

    trainer = Trainer(...)
    watch(trainer)
    trainer.train()                                      # gpushim run python train.py
"""

import importlib
from typing import Any, Dict, Optional

from ._loop import Loop

_Callback: Any = importlib.import_module("transformers").TrainerCallback


class MemoryCallback(_Callback):  # type: ignore[misc]
    """Makes each step a range `step` and each epoch a mark, and adds four figures to what the trainer logs.

    The figures reach the callbacks that come after this one: `watch` puts it before all loggers.
    """

    def __init__(self) -> None:
        self._loop = Loop()

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Begins to watch."""
        self._loop.begins()

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Marks the epoch."""
        self._loop.epoch_begins(round(state.epoch or 0))

    def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Opens the range of the step."""
        self._loop.step_begins()

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Closes the range of the step."""
        self._loop.step_ends()

    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Closes a range that is still open."""
        self._loop.interrupted()

    def on_log(self, args: Any, state: Any, control: Any, logs: Optional[Dict[str, float]] = None, **more: Any) -> None:
        """Adds the figures to the loss and what else is logged, also in the trainer's history."""
        figures = None if logs is None or "loss" not in logs else self._loop.figures()
        if logs is not None and figures is not None:
            logs.update(figures)
            if state.log_history and state.log_history[-1].get("step") == state.global_step:
                state.log_history[-1].update(figures)


def watch(trainer: Any) -> MemoryCallback:
    """Puts a callback before those of the trainer, so that every logger has the figures."""
    callback = MemoryCallback()
    trainer.callback_handler.callbacks.insert(0, callback)
    return callback

"""A callback for Lightning that logs GPU memory.

    from gpushim.integrations.lightning import MemoryCallback

    trainer = Trainer(callbacks=[MemoryCallback()])      # gpushim run python train.py
"""

import importlib
import sys
from typing import Any, Optional

from ._loop import Loop


def _library() -> Any:
    """The package that the program uses: Lightning has two names, whose classes do not mix."""
    names = ["lightning.pytorch", "pytorch_lightning"]
    if "lightning" not in sys.modules and "pytorch_lightning" in sys.modules:
        names.reverse()
    for name in names:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    raise ModuleNotFoundError("Lightning is not installed: pip install lightning")


_Callback: Any = _library().Callback


class MemoryCallback(_Callback):  # type: ignore[misc]
    """Makes each batch a range `step` and each epoch a mark, and logs four figures to the trainer's loggers.

    They are logged every so many batches; by default as often as the trainer logs.
    """

    def __init__(self, every: Optional[int] = None) -> None:
        self._every = every
        self._loop = Loop()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begins to watch."""
        self._loop.begins()

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Marks the epoch."""
        self._loop.epoch_begins(trainer.current_epoch)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Opens the range of the step."""
        self._loop.step_begins()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Closes the range, and logs if it is time."""
        self._loop.step_ends()
        if self._loop.steps >= (self._every or trainer.log_every_n_steps or 1):
            self._log(trainer)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Logs the steps after the last figures."""
        if self._loop.steps:
            self._log(trainer)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Closes the range of the step that failed."""
        self._loop.interrupted()

    def _log(self, trainer: Any) -> None:
        figures = self._loop.figures()
        if figures is not None:
            for logger in trainer.loggers:
                logger.log_metrics(figures, step=trainer.global_step)

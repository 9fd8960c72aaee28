"""One logger for a loop of your own, that feeds Weights & Biases, MLflow and TensorBoard.

    log = Logger(tensorboard=writer)                     # gpushim run python train.py
    for number, batch in enumerate(batches):
        with log.step(number):
            train(batch)
"""

import contextlib
import sys
from typing import Any, Dict, Iterator, Optional

from ._loop import Loop


class Logger:
    """Makes each step a range `step`, and logs four figures every so many steps.

    They go to the run of Weights & Biases and that of MLflow, if one is active, and to the TensorBoard writer given.
    """

    def __init__(self, *, every: int = 10, tensorboard: Optional[Any] = None) -> None:
        self._every = every
        self._tensorboard = tensorboard
        self._loop = Loop()
        self._loop.begins()

    @contextlib.contextmanager
    def step(self, number: int) -> Iterator[None]:
        """A step of the loop, by its number in the loggers."""
        self._loop.step_begins()
        try:
            yield
        except BaseException:
            self._loop.interrupted()
            raise
        self._loop.step_ends()
        if self._loop.steps >= self._every:
            self.log(number)

    def epoch(self, number: int) -> None:
        """Marks the beginning of an epoch, counted from 0."""
        self._loop.epoch_begins(number)

    def log(self, number: int) -> None:
        """Logs the figures since they were last logged, now."""
        figures = self._loop.figures()
        if figures is not None:
            _wandb(figures)
            _mlflow(figures, number)
            if self._tensorboard is not None:
                for name, value in figures.items():
                    self._tensorboard.add_scalar(name, value, number)


def _wandb(figures: Dict[str, float]) -> None:
    run = getattr(sys.modules.get("wandb"), "run", None)
    if run is not None:
        # A row of its own would move the program's steps on: the figures join the program's next row.
        run.log(figures, commit=False)


def _mlflow(figures: Dict[str, float], number: int) -> None:
    mlflow = sys.modules.get("mlflow")
    if mlflow is not None and mlflow.active_run() is not None:
        mlflow.log_metrics(figures, step=number)

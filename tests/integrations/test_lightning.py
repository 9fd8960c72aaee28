"""The callback for Lightning: by the real trainer where PyTorch is, and by its hooks alone everywhere."""

import csv
import importlib.util

import pytest

MIB = 1 << 20


def test_the_hooks_alone(program):
    """Also where there is no PyTorch: a class plays Lightning's."""
    done = program(
        """
        import sys, types
        import driver

        library = sys.modules["lightning.pytorch"] = types.ModuleType("lightning.pytorch")
        sys.modules["lightning"] = types.ModuleType("lightning")
        library.Callback = object
        from gpushim.integrations.lightning import MemoryCallback

        class Logger:
            rows = []
            def log_metrics(self, figures, step):
                self.rows.append([step, figures])

        trainer = types.SimpleNamespace(current_epoch=0, global_step=0, log_every_n_steps=2, loggers=[Logger()])
        callback = MemoryCallback()
        driver.start()
        callback.on_train_start(trainer, None)
        callback.on_train_epoch_start(trainer, None)
        for index in range(4):
            callback.on_train_batch_start(trainer, None, None, index)
            driver.step()
            trainer.global_step += 1
            callback.on_train_batch_end(trainer, None, None, None, index)
        callback.on_train_batch_start(trainer, None, None, 4)
        callback.on_exception(trainer, None, MemoryError())
        driver.tell(Logger.rows)
        """
    )
    assert [[step, figures["gpushim/peak_bytes"], figures["gpushim/growth_per_step_bytes"]] for step, figures in done.found] == [
        [2, 6 * MIB, MIB],
        [4, 8 * MIB, MIB],
    ]
    assert done.names("range-push") == ["step"] * 5 and done.count("range-pop") == 5
    assert done.names("mark") == ["epoch 0"]


TRAINING = """
import driver
import torch
import {library} as pl
from {library}.loggers import CSVLogger
from gpushim.integrations.lightning import MemoryCallback

class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        driver.step()
        return self.layer(batch).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

driver.start()
driver.play_torch()
batches = torch.utils.data.DataLoader(torch.zeros(3, 4), batch_size=1)
trainer = pl.Trainer(
    accelerator="cpu", max_epochs=3, log_every_n_steps=2, logger=CSVLogger("logs", name="", version=""), callbacks=[MemoryCallback()],
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
)
trainer.fit(Model(), batches)
"""


ON_A_GPU = """
import driver
import torch
import {library} as pl
from {library}.loggers.logger import DummyLogger
from gpushim.integrations.lightning import MemoryCallback

kept, rows, cuda = [], [], torch.cuda

class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2048, 2048)
    def training_step(self, batch, index):
        kept.append(torch.zeros(2 << 20, device="cuda"))
        return self.layer(batch).pow(2).mean()
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())

class Logger(DummyLogger):
    def log_metrics(self, figures, step=None):
        if "gpushim/peak_bytes" in figures:
            own = cuda.max_memory_allocated(), cuda.memory_reserved() - cuda.memory_allocated()
            rows.append([figures, own])
            cuda.reset_peak_memory_stats()

batches = torch.utils.data.DataLoader(torch.randn(20 * 64, 2048), batch_size=64)
trainer = pl.Trainer(
    accelerator="gpu", devices=1, max_epochs=1, log_every_n_steps=5, logger=Logger(), callbacks=[MemoryCallback()],
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
)
trainer.fit(Model(), batches)
driver.tell(rows)
"""


def test_figures_on_a_gpu_are_those_of_pytorch(program):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: Lightning's trainer cannot be run")
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU here")
    has_new_name = importlib.util.find_spec("lightning") is not None
    library = "lightning.pytorch" if has_new_name else "pytorch_lightning"
    pytest.importorskip(library)
    # The second and later rows: before the first, PyTorch's peaks and gpushim's begin at different times.
    for figures, (peak, unused) in program(ON_A_GPU.replace("{library}", library)).found[1:4]:
        assert figures["gpushim/peak_bytes"] == peak and figures["gpushim/reserved_unused_bytes"] == unused
        assert figures["gpushim/growth_per_step_bytes"] == 8 * MIB
        assert figures["gpushim/outside_framework_bytes"] >= 0


@pytest.mark.parametrize("library", ["lightning.pytorch", "pytorch_lightning"])
def test_the_real_trainer(program, tmp_path, library):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: Lightning's trainer cannot be run")
    if torch.cuda.is_available():
        pytest.skip("Lightning's CPU trainer fails where the program, and not PyTorch, has made a context on a GPU")
    pytest.importorskip(library)
    done = program(TRAINING.replace("{library}", library))
    with open(tmp_path / "logs/metrics.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["gpushim/peak_bytes"]]
    peaks = [float(row["gpushim/peak_bytes"]) / MIB for row in rows]
    growth = [float(row["gpushim/growth_per_step_bytes"] or 0) / MIB for row in rows]
    outside = [float(row["gpushim/outside_framework_bytes"]) / MIB for row in rows]
    # Two batches a row, and a last row of the ninth.
    assert peaks == [6, 8, 10, 12, 13] and growth == [1, 1, 1, 1, 1] and outside == [0, 1, 3, 5, 6]
    assert done.names("mark") == ["epoch 0", "epoch 1", "epoch 2"]
    assert done.names("range-push").count("step") == 9


def test_without_gpushim_nothing_is_logged(program, tmp_path):
    pytest.importorskip("torch", reason="PyTorch is not installed: Lightning's trainer cannot be run")
    pytest.importorskip("lightning.pytorch")
    done = program(TRAINING.replace("{library}", "lightning.pytorch"), preload=False)
    assert not (tmp_path / "logs/metrics.csv").exists() or "gpushim" not in (tmp_path / "logs/metrics.csv").read_text()
    assert done.errors.count("gpushim is not preloaded") == 1

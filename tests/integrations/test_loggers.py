"""The logger for a loop of one's own, with the real Weights & Biases, MLflow and TensorBoard, offline."""

import sys
import types

import pytest

import gpushim
from gpushim.integrations._figures import Watch

MIB = 1 << 20
LOOP = """
import driver
from gpushim.integrations.loggers import Logger

def loop(log, steps=6, after=lambda number: None):
    driver.start()
    driver.play_torch()
    log.epoch(0)
    for number in range(steps):
        with log.step(number):
            driver.step()
        after(number)
"""
FIGURES = [
    # After 2, 4 and 6 steps: what is kept, 4 MiB of scratch, and the step's own.
    {"peak": 6, "growth_per_step": 1, "reserved_unused": 3, "outside_framework": 0},
    {"peak": 8, "growth_per_step": 1, "reserved_unused": 3, "outside_framework": 1},
    {"peak": 10, "growth_per_step": 1, "reserved_unused": 3, "outside_framework": 3},
]


def named(figures):
    return {f"gpushim/{name}_bytes": float(value * MIB) for name, value in figures.items()}


def test_figures_of_each_window(program):
    done = program(
        LOOP
        + """
class Writer:
    rows = {}
    def add_scalar(self, name, value, step):
        self.rows.setdefault(step, {})[name] = value

log = Logger(every=2, tensorboard=Writer())
loop(log)
driver.tell(Writer.rows)
"""
    )
    assert done.found == {str(step): named(figures) for step, figures in zip((1, 3, 5), FIGURES)}
    assert done.names("range-push") == ["step"] * 6 and done.names("mark") == ["epoch 0"]


def test_without_a_framework_there_is_no_outside(program):
    done = program(
        """
        import driver
        from gpushim.integrations._figures import Watch

        driver.start()
        watch = Watch()
        driver.step()
        watch.step_ended()
        driver.tell(watch.figures().named())
        """
    )
    # The pool holds the scratch block; one step is too few for a growth.
    assert set(done.found) == {"gpushim/peak_bytes", "gpushim/reserved_unused_bytes"}
    assert done.found["gpushim/reserved_unused_bytes"] >= 4 * MIB


def test_a_step_that_fails_closes_its_range(program):
    done = program(
        """
        import driver
        from gpushim.integrations.loggers import Logger

        driver.start()
        log = Logger()
        for number in range(2):
            try:
                with log.step(number):
                    driver.step()
                    raise MemoryError
            except MemoryError:
                pass
        """
    )
    assert (done.count("range-push"), done.count("range-pop")) == (2, 2)


def test_without_gpushim_nothing_is_logged_and_it_is_said_once(program):
    done = program(
        """
        import driver
        from gpushim.integrations.loggers import Logger

        class Writer:
            rows = []
            def add_scalar(self, *row):
                self.rows.append(row)

        for _ in range(2):
            log = Logger(every=1, tensorboard=Writer())
            for number in range(3):
                with log.step(number):
                    pass
        driver.tell(Writer.rows)
        """,
        preload=False,
    )
    assert done.found == []
    assert done.errors.count("gpushim is not preloaded: nothing of GPU memory is logged; start the program by `gpushim run`") == 1


def test_tensorboard(program):
    pytest.importorskip("tensorboard")
    done = program(
        LOOP
        + """
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator, TENSORS
from tensorboard.summary import Writer
from tensorboard.util import tensor_util

writer = Writer("logs")
loop(Logger(every=2, tensorboard=writer))
writer.close()
read = EventAccumulator("logs", size_guidance={TENSORS: 0})
read.Reload()
driver.tell({name: [float(tensor_util.make_ndarray(one.tensor_proto)) for one in read.Tensors(name)] for name in read.Tags()["tensors"]})
"""
    )
    assert done.found == {name: [named(figures)[name] for figures in FIGURES] for name in named(FIGURES[0])}


def test_mlflow(program):
    pytest.importorskip("mlflow")
    done = program(
        LOOP
        + """
import mlflow

mlflow.set_tracking_uri("file:mlruns")
with mlflow.start_run() as run:
    loop(Logger(every=2))
client = mlflow.MlflowClient()
names = client.get_run(run.info.run_id).data.metrics
driver.tell({name: [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, name)] for name in names})
""",
        MLFLOW_ALLOW_FILE_STORE="true",
    )
    steps = (1, 3, 5)
    assert done.found == {name: [[step, named(figures)[name]] for step, figures in zip(steps, FIGURES)] for name in named(FIGURES[0])}


def test_wandb(program):
    pytest.importorskip("wandb")
    done = program(
        LOOP
        + """
import wandb

run = wandb.init(mode="offline", project="memory", settings=wandb.Settings(silent=True))
loop(Logger(every=2), after=lambda number: run.log({"loss": number}, step=number))
run.log({"loss": 6}, step=6)
driver.tell({name: run.summary[name] for name in run.summary.keys() if not name.startswith("_")})
run.finish()
"""
    )
    # They join the rows of the program, and make none. The row of step 6 is still open.
    assert done.found == {**named(FIGURES[2]), "loss": 5}


class Torch:
    """PyTorch's module for CUDA, with 10 MiB reserved on device 1."""

    def __init__(self, reserved=10 * MIB):
        self.reserved = reserved

    def is_initialized(self):
        return True

    def current_device(self):
        return 1

    def memory_reserved(self, device):
        if self.reserved is None:
            raise RuntimeError("a pluggable allocator has no statistics")
        assert device == 1
        return self.reserved


@pytest.mark.parametrize(
    "elastic, reserved, tensors, expected",
    [
        ("off", 10 * MIB, 7 * MIB, (7 * MIB, 3 * MIB, 5 * MIB)),
        # The cache of a library that has just freed more than gpushim has seen.
        ("off", 16 * MIB, 7 * MIB, (7 * MIB, 9 * MIB, 0)),
        ("auto", 10 * MIB, 7 * MIB, (7 * MIB, None, None)),
        ("off", None, 7 * MIB, (7 * MIB, None, None)),
        ("off", None, 0, (15 * MIB, 2 * MIB, None)),
    ],
)
def test_figures_of_tensors(monkeypatch, elastic, reserved, tensors, expected):
    used = {"tensors": tensors, "device": 15 * MIB}
    stats = gpushim.Stats(live_blocks=1, allocated=15 * MIB, cached=2 * MIB, reserved=17 * MIB, held_for_graphs=0, pools=1, stream_queues=1, usage=())
    monkeypatch.setattr(gpushim, "usage", lambda kind, device: gpushim.Usage(kind, device, used[kind], used[kind]) if device == 1 else None)
    monkeypatch.setattr(gpushim, "stats", lambda: stats)
    monkeypatch.setenv("GPUSHIM_ELASTIC", elastic)
    torch = types.ModuleType("torch")
    torch.cuda = Torch(reserved)
    monkeypatch.setitem(sys.modules, "torch", torch)
    watch = Watch()
    watch.step_ended()
    found = watch.figures()
    assert (found.peak, found.reserved_unused, found.outside_framework) == expected

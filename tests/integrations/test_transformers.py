"""The callback for the Trainer of transformers: by the real trainer where PyTorch is, and by its callbacks everywhere."""

import pytest

MIB = 1 << 20


def peaks_and_growth(history):
    rows = [row for row in history if "gpushim/peak_bytes" in row]
    return [[row["step"], row["gpushim/peak_bytes"] / MIB, row["gpushim/growth_per_step_bytes"] / MIB] for row in rows]


def test_the_callbacks_of_the_real_library(program):
    """Of transformers the list of callbacks and the state; the loop plays the trainer's, which needs PyTorch."""
    pytest.importorskip("transformers")
    done = program(
        """
        import types
        import driver
        from transformers import TrainerCallback, TrainerControl, TrainerState
        from transformers.trainer_callback import CallbackHandler, DefaultFlowCallback
        from gpushim.integrations.transformers import watch

        class Reports(TrainerCallback):
            rows = []
            def on_log(self, args, state, control, logs=None, **more):
                self.rows.append({**logs, "step": state.global_step})

        args = types.SimpleNamespace(logging_first_step=False, logging_strategy="no", eval_strategy="no", save_strategy="no")
        state, control = TrainerState(max_steps=-1, logging_steps=0, eval_steps=0, save_steps=0, epoch=0), TrainerControl()
        handler = CallbackHandler([DefaultFlowCallback, Reports], *[None] * 4)
        watch(types.SimpleNamespace(callback_handler=handler))
        driver.start()
        handler.on_train_begin(args, state, control)
        handler.on_epoch_begin(args, state, control)
        for state.global_step in range(1, 5):
            handler.on_step_begin(args, state, control)
            driver.step()
            handler.on_step_end(args, state, control)
            if state.global_step % 2 == 0:
                logs = {"loss": 1.0}
                state.log_history.append({**logs, "step": state.global_step})
                handler.on_log(args, state, control, logs)
        handler.on_log(args, state, control, {"eval_loss": 1.0})
        handler.on_train_end(args, state, control)
        driver.tell([Reports.rows, state.log_history])
        """,
        CUDA_VISIBLE_DEVICES="",
    )
    reported, history = done.found
    assert peaks_and_growth(reported) == peaks_and_growth(history) == [[2, 6, 1], [4, 8, 1]]
    assert reported[-1] == {"eval_loss": 1.0, "step": 4}
    assert done.names("range-push") == ["step"] * 4 and done.names("mark") == ["epoch 0"]


TRAINING = """
import driver
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments
from gpushim.integrations.transformers import watch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def forward(self, x):
        driver.step()
        return {"loss": self.layer(x).sum()}

driver.start()
args = TrainingArguments("out", num_train_epochs=2, per_device_train_batch_size=1, logging_steps=2, report_to=[], disable_tqdm=True, use_cpu=True)
trainer = Trainer(Model(), args, train_dataset=[{"x": torch.zeros(4)}] * 4)
watch(trainer)
trainer.train()
driver.tell(trainer.state.log_history)
"""


def test_the_real_trainer(program):
    for library in ("torch", "accelerate", "transformers"):
        pytest.importorskip(library, reason="PyTorch or accelerate is not installed: the trainer of transformers cannot be run")
    done = program(TRAINING)
    assert peaks_and_growth(done.found) == [[2, 6, 1], [4, 8, 1], [6, 10, 1], [8, 12, 1]]
    assert done.names("mark") == ["epoch 0", "epoch 1"]
    assert done.names("range-push").count("step") == 8


def test_without_gpushim_nothing_is_logged(program):
    for library in ("torch", "accelerate", "transformers"):
        pytest.importorskip(library, reason="PyTorch or accelerate is not installed: the trainer of transformers cannot be run")
    done = program(TRAINING, preload=False)
    assert peaks_and_growth(done.found) == [] and done.errors.count("gpushim is not preloaded") == 1

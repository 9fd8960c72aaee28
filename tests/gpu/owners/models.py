"""A training whose parameters, gradients and optimizer state are counted by PyTorch itself: python models.py KIND [STEPS].

KIND: gpt2, resnet50, lightning, compiled. Prints one line of JSON: bytes of each, at the end of the last step, and the allocated
bytes after each step.
"""

import json
import sys

import torch
from torch import nn


def bytes_of(tensors):
    """Bytes of the storages, each once."""
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors if tensor is not None}
    return sum(storages.values())


def told(model, optimizer):
    parameters = list(model.parameters())
    state = [value for entry in optimizer.state.values() for value in entry.values() if torch.is_tensor(value) and value.is_cuda]
    print(json.dumps({
        "parameters": bytes_of(parameters),
        "buffers": bytes_of([buffer for buffer in model.buffers() if buffer.is_cuda]),
        "gradients": bytes_of([parameter.grad for parameter in parameters]),
        "optimizer-state": bytes_of(state),
        "allocated": allocated,
    }), flush=True)


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel
    model = GPT2LMHeadModel(GPT2Config(n_positions=512, use_cache=False)).cuda()
    return model, lambda: model(ids, labels=ids).loss if (ids := torch.randint(0, 50257, (8, 512), device="cuda")) is not None else None


def resnet50():
    import timm
    model = timm.create_model("resnet50").cuda()
    return model, lambda: nn.functional.cross_entropy(model(torch.randn(32, 3, 224, 224, device="cuda")), torch.randint(0, 1000, (32,), device="cuda"))


def compiled():
    model = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(2048, 2048), nn.GELU())]).cuda()
    fast = torch.compile(model)
    return model, lambda: fast(torch.randn(1024, 2048, device="cuda")).square().mean()


kept = []  # to the end of the process
allocated = []


def train(kind, steps):
    model, loss = globals()[kind]()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(steps):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
        allocated.append(torch.cuda.memory_allocated())
    torch.cuda.synchronize()
    told(model, optimizer)
    kept.extend([model, optimizer])


def lightning(steps):
    import lightning

    class Classifier(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1000))

        def training_step(self, batch, index):
            return nn.functional.cross_entropy(self.body(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-4)

        def on_train_batch_end(self, outputs, batch, index):
            allocated.append(torch.cuda.memory_allocated())
            if index == steps - 1:
                told(self, self.optimizers())

    data = torch.utils.data.TensorDataset(torch.randn(256 * steps, 4096), torch.randint(0, 1000, (256 * steps,)))
    trainer = lightning.Trainer(max_epochs=1, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False)
    kept.append(trainer)
    trainer.fit(Classifier(), torch.utils.data.DataLoader(data, batch_size=256))


if __name__ == "__main__":
    kind = sys.argv[1]
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    lightning(steps) if kind == "lightning" else train(kind, steps)

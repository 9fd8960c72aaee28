"""Lightning: trains an embedding of digits; a callback collects the embeddings, to show them when training is over."""
import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, BATCHES, BATCH, CLASSES = 3, 20, 1024, 10


class DigitEmbedding(L.LightningModule):
    def __init__(self, dim=512, lr=1e-3):
        super().__init__()
        self.lr = lr
        self.encoder = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, dim))
        self.classifier = nn.Linear(dim, CLASSES)

    def training_step(self, batch, batch_idx):
        x, y = batch
        embedding = self.encoder(x)
        loss = F.cross_entropy(self.classifier(embedding), y)
        return {"loss": loss, "embedding": embedding.detach()}

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)


class EmbeddingCollector(Callback):
    def __init__(self):
        self.outputs = []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.outputs.append(outputs)

    def on_train_end(self, trainer, pl_module):
        spread = torch.stack([one["embedding"].std() for one in self.outputs[-BATCHES:]]).mean()
        print(f"{len(self.outputs)} batches of embeddings, spread in the last epoch {spread.item():.4f}")


class MemoryLog(Callback):
    def __init__(self):
        self.allocated = []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.allocated.append(torch.cuda.memory_allocated())

    def truth(self):
        half = len(self.allocated) // 2
        return (self.allocated[-1] - self.allocated[half]) // (len(self.allocated) - 1 - half)


def loader():
    images = torch.rand(BATCHES * BATCH, 784)
    digits = torch.randint(0, CLASSES, (BATCHES * BATCH,))
    return DataLoader(TensorDataset(images, digits), batch_size=BATCH, shuffle=True)


def main():
    L.seed_everything(4)
    memory = MemoryLog()
    trainer = L.Trainer(
        accelerator="gpu",
        devices=1,
        max_epochs=EPOCHS,
        callbacks=[EmbeddingCollector(), memory],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(DigitEmbedding(), loader())
    print(f"TRUTH allocated_growth_per_iter={memory.truth()} peak={torch.cuda.max_memory_allocated()} "
          f"reserved={torch.cuda.max_memory_reserved()}")


if __name__ == "__main__":
    main()

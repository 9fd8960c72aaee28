"""Language model on batches that were sorted by length, the shortest first, so that little is padding."""
import random

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, WIDTH, BATCH, BATCHES = 2048, 512, 32, 60


class Corpus:
    def __init__(self, sentences, seed=3):
        rng = random.Random(seed)
        self.lengths = [rng.randint(24, 512) for _ in range(sentences)]

    def sorted_batches(self):
        """Token numbers on the host, one batch after another, padded to the longest in it."""
        ordered = sorted(self.lengths)
        for start in range(0, len(ordered), BATCH):
            lengths = ordered[start:start + BATCH]
            tokens = torch.randint(1, VOCABULARY, (len(lengths), max(lengths)))
            for row, length in enumerate(lengths):
                tokens[row, length:] = 0
            yield tokens


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0)
        layer = nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        return self.head(self.body(self.embed(tokens)))


def train_on(model, optimizer, batch):
    tokens = batch.cuda()
    logits = model(tokens)
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=0)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
    allocated, peaks = [], []
    for number, batch in enumerate(Corpus(BATCH * BATCHES).sorted_batches()):
        torch.cuda.reset_peak_memory_stats()
        loss = train_on(model, optimizer, batch)
        allocated.append(torch.cuda.memory_allocated())
        peaks.append(torch.cuda.max_memory_allocated())
        if number % 15 == 0:
            print(f"batch {number}: {batch.shape[1]} tokens wide, loss {loss:.3f}, peak {peaks[-1] >> 20} MiB")
    half = BATCHES // 2
    rate = (allocated[-1] - allocated[half]) // (BATCHES - 1 - half)
    print(f"TRUTH allocated_growth_per_iter={rate} peak={max(peaks)} reserved={torch.cuda.max_memory_reserved()} "
          f"peak_of_the_first={peaks[1]}")


main()

"""Workers that load, batches in pinned memory, and a list that keeps them."""

import torch
from torch import nn
from truth import tell

WIDTH, BATCH, STEPS = 4096, 64, 30


class Samples(torch.utils.data.Dataset):
    """Made by workers, on the host."""

    def __len__(self):
        return BATCH * STEPS

    def __getitem__(self, index):
        return torch.full((WIDTH,), float(index))


def main():
    model = nn.Linear(WIDTH, 16).to("cuda")
    seen = []
    loader = torch.utils.data.DataLoader(Samples(), batch_size=BATCH, num_workers=2, pin_memory=True)
    for batch in loader:
        seen.append(batch)
        model(batch.to("cuda", non_blocking=True)).square().mean().backward()
        model.zero_grad()
    # The batch is pinned on a thread of PyTorch's own.
    tell(planted=BATCH * WIDTH * 4, function="pin_memory", seen=len(seen))


main()

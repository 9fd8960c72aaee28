"""PyTorch: tensors copied between two GPUs in both directions, whole and transposed, while memory of other
sizes comes and goes on both, so that what the peers may reach keeps changing."""

import random

from common import arguments, deterministic_torch, emit, tensor_digest

options = arguments(steps=60)
torch = deterministic_torch()
gpus = [torch.device("cuda", number) for number in range(2)]
emit("peers", torch.cuda.can_device_access_peer(0, 1), torch.cuda.can_device_access_peer(1, 0))
mixed = random.Random(9)
kept, wrong = [], 0
for step in range(options.steps):
    here, there = gpus if step % 2 == 0 else gpus[::-1]
    rows, columns = mixed.randrange(1, 3000), mixed.randrange(1, 3000)
    source = torch.randn(rows, columns, device=here)
    moved = source.to(there)
    back = moved.to(here)
    turned = torch.empty(columns, rows, device=there)
    turned.copy_(source.t())
    wrong += not torch.equal(source, back)
    wrong += not torch.equal(moved.t(), turned)
    if step % 10 == 9:
        emit("copied", step, tensor_digest(source), tensor_digest(moved), tensor_digest(turned))
    kept.append(torch.full((mixed.randrange(1, 20 << 20),), float(step), device=there))
    if len(kept) > 6:
        del kept[mixed.randrange(len(kept))]
    del source, moved, back, turned
    if step % 20 == 19:
        torch.cuda.empty_cache()
emit("kept", [(int(one[0].item()), bool((one == one[0]).all())) for one in kept])
emit("wrong", wrong)

"""PyTorch: which allocator it runs on, and what the variables that choose it say. Prints JSON."""

import json
import os

import torch

total = torch.ones(1000, device="cuda").sum().item()
print(json.dumps({
    "backend": torch.cuda.get_allocator_backend(),
    "cuda": os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""),
    "plain": os.environ.get("PYTORCH_ALLOC_CONF", ""),
    "works": total == 1000,
}))

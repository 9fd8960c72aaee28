"""The article's script on allocated and reserved memory, and on what `empty_cache` gives back."""

import torch
from truth import tell

FIGURES = []


def look(when):
    """What PyTorch says, in bytes."""
    FIGURES.append((torch.cuda.memory_allocated(), torch.cuda.memory_reserved()))
    print(when, "allocated", FIGURES[-1][0], "reserved", FIGURES[-1][1])


def main():
    tensor1 = torch.randn(1024, 1024, device="cuda")
    tensor2 = torch.randn(2048, 2048, device="cuda")
    look("at first")
    del tensor1
    look("after del tensor1")
    del tensor2
    look("after del tensor2")
    torch.cuda.empty_cache()
    look("after empty_cache")
    # PyTorch announces what it has reserved with each tensor.
    small = torch.zeros(1, device="cuda")
    look("with a small tensor")
    tell(allocated=[a for a, _ in FIGURES], reserved=[r for _, r in FIGURES], function="main", small=small.nelement())


main()

"""Tensors that are deleted and yet stay: another name refers to them."""

import torch
from torch.cuda import nvtx
from truth import tell


def load_features():
    return torch.randn(1024, 1024, device="cuda"), torch.randn(2048, 2048, device="cuda")


def main():
    tensor1, tensor2 = load_features()
    shown = {"first": tensor1, "second": tensor2}
    with nvtx.range("del"):
        del tensor1, tensor2
        torch.cuda.empty_cache()
    nvtx.mark("after del")
    kept = torch.cuda.memory_allocated()
    with nvtx.range("clear"):
        shown.clear()
    tell(planted=(1024 * 1024 + 2048 * 2048) * 4, function="load_features", kept=kept, left=torch.cuda.memory_allocated())


main()

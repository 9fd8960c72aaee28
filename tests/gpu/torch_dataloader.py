"""PyTorch: DataLoader workers that fork from a parent which already uses CUDA."""

from common import arguments, deterministic_torch, emit, tensor_digest, torch_figures, write_figures

options = arguments()
torch = deterministic_torch()
device = torch.device("cuda")
weights = torch.randn(64, 64, device=device)
torch.cuda.synchronize()


class Squares(torch.utils.data.Dataset):
    """Item i is computed in a worker, on the host."""

    def __len__(self):
        return 256

    def __getitem__(self, index):
        return torch.arange(64, dtype=torch.float32) * index


loader = torch.utils.data.DataLoader(
    Squares(), batch_size=32, num_workers=3, pin_memory=True, multiprocessing_context="fork"
)
for epoch in range(2):
    for number, batch in enumerate(loader):
        result = batch.to(device, non_blocking=True) @ weights
        emit("batch", epoch, number, tensor_digest(result))
write_figures(options.json, torch_figures(torch))

"""Denoising autoencoder. Trained on the squared error; the robust error is only shown, as a mean over the whole run."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda")

batch_size = 512
features = 2048
steps = 60


class Autoencoder(nn.Module):
    def __init__(self, width, code):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(width, 1024), nn.ReLU(), nn.Linear(1024, code))
        self.decoder = nn.Sequential(nn.Linear(code, 1024), nn.ReLU(), nn.Linear(1024, width))

    def forward(self, x):
        code = self.encoder(x)
        return self.decoder(code)


def sample_batch():
    return torch.randn(batch_size, features, device=device)


model = Autoencoder(features, 128).to(device)
opt = torch.optim.Adam(model.parameters(), lr=1e-3)

running = 0
memory = []

for step in range(steps):
    clean = sample_batch()
    noisy = clean + 0.1 * torch.randn_like(clean)

    restored = model(noisy)
    loss = F.mse_loss(restored, clean)
    robust = F.smooth_l1_loss(restored, clean)

    opt.zero_grad()
    loss.backward()
    opt.step()

    running = running + robust
    if step % 10 == 9:
        print(f"step {step + 1:3d}  mse {loss.item():.4f}  robust (mean so far) {running.item() / (step + 1):.4f}")
    memory.append(torch.cuda.memory_allocated())

tail = memory[steps // 2:]
growth = (tail[-1] - tail[0]) // (len(tail) - 1)
print(f"TRUTH allocated_growth_per_iter={growth} peak={torch.cuda.max_memory_allocated()} "
      f"reserved={torch.cuda.max_memory_reserved()}")

"""PyTorch: torch.compile (inductor, Triton kernels), and its CUDA-graph mode; `--only` one of the two. With `--churn` memory of other
sizes comes and goes between the steps, so that pages without a tensor serve others."""

from common import arguments, deterministic_torch, emit, tensor_digest, torch_figures, write_figures

options = arguments(only="", churn=False)
torch = deterministic_torch()
device = torch.device("cuda")


def build():
    torch.manual_seed(2)
    return torch.nn.Sequential(
        torch.nn.Linear(128, 256), torch.nn.GELU(), torch.nn.LayerNorm(256), torch.nn.Linear(256, 32)
    ).to(device)


kept = []


def churn(step):
    """Some MiB each, of which some stay for a few steps; their contents are looked at before they go."""
    sizes = [((step * 7919 + each * 104729) % 61 + 1) << 18 for each in range(12)]
    made = [torch.full((size,), float(step + each), device=device) for each, size in enumerate(sizes)]
    kept.append((made[step % len(made)], float(step + step % len(made))))
    if len(kept) > 5:
        tensor, value = kept.pop(step % 3)
        emit("kept", step, bool((tensor == value).all()))


def train(name, **how):
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    compiled = torch.compile(model, **how)
    torch.manual_seed(3)
    for step in range(options.steps):
        inputs = torch.randn(32, 128, device=device)
        loss = compiled(inputs).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        emit(name, step, loss.item())
        if options.churn:
            churn(step)
    emit(name, "weights", tensor_digest(torch.cat([p.reshape(-1) for p in model.parameters()])))


for name, how in {"default": {}, "reduce-overhead": {"mode": "reduce-overhead"}}.items():
    if options.only in ("", name):
        train(name, **how)
write_figures(options.json, torch_figures(torch))

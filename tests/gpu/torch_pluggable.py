"""PyTorch on our exported functions through CUDAPluggableAllocator (`--library`), or on its own
allocator: a small training on two streams, with the same losses."""

from common import arguments, deterministic_torch, emit, tensor_digest

options = arguments(steps=20, library="")
torch = deterministic_torch()
if options.library:
    own = torch.cuda.memory.CUDAPluggableAllocator(options.library, "gpushim_malloc", "gpushim_free")
    torch.cuda.memory.change_current_allocator(own)
device = torch.device("cuda")
model = torch.nn.Sequential(
    torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.LayerNorm(2048), torch.nn.Linear(2048, 10)
).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
side = torch.cuda.Stream()
for step in range(options.steps):
    rows = 64 * (1 + step * 7 % 11)
    # Inputs are made on a stream of their own, as a loader would.
    with torch.cuda.stream(side):
        inputs = torch.randn(rows, 512, device=device)
    torch.cuda.current_stream().wait_stream(side)
    loss = model(inputs).square().mean()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    emit("loss", step, loss.item())
    # Freed on its own stream, once the work above is in that stream's past.
    side.wait_stream(torch.cuda.current_stream())
    del inputs
emit("weights", tensor_digest(torch.cat([p.reshape(-1) for p in model.parameters()])))
torch.cuda.synchronize()

"""PyTorch: eager work, side streams, pinned copies, an out-of-memory survived, the cache emptied."""

from common import arguments, deterministic_torch, emit, tensor_digest, torch_figures, write_figures

options = arguments()
torch = deterministic_torch()
device = torch.device("cuda")

a = torch.randn(512, 768, device=device)
b = torch.randn(768, 256, device=device)
emit("matmul", tensor_digest(a @ b))

# A little training: convolutions, a norm, a linear layer, SGD with momentum.
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.ReLU(),
    torch.nn.Conv2d(16, 32, 3, stride=2, padding=1), torch.nn.ReLU(), torch.nn.Flatten(),
    torch.nn.Linear(32 * 16 * 16, 10),
).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for step in range(options.steps):
    images = torch.randn(8 + step % 5, 3, 32, 32, device=device)
    labels = torch.randint(0, 10, (images.shape[0],), device=device)
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    emit("loss", step, loss.item())

# Tensors made on one stream, used on another, freed while that other still works on them.
side = [torch.cuda.Stream() for _ in range(3)]
total = torch.zeros(1, device=device, dtype=torch.float64)
for turn in range(30):
    source = torch.full((1 << 20,), float(turn), device=device)
    with torch.cuda.stream(side[turn % 3]):
        torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
        source.record_stream(torch.cuda.current_stream())
        part = (source.double() * 2).sum()
    torch.cuda.default_stream().wait_stream(side[turn % 3])
    part.record_stream(torch.cuda.default_stream())
    total += part
    del source, part
emit("streams", total.item())

host = torch.arange(1 << 20, dtype=torch.int32).pin_memory()
there = host.to(device, non_blocking=True)
back = torch.empty_like(host).pin_memory()
back.copy_(there, non_blocking=True)
torch.cuda.synchronize()
emit("pinned", tensor_digest(back), bool((back == host).all()))

# Beyond any device there is: the error is PyTorch's own, and the process carries on.
try:
    torch.empty(1 << 44, dtype=torch.uint8, device=device)
    emit("out_of_memory", "none")
except RuntimeError as error:  # Which kind depends on whether PyTorch's cache is on.
    emit("out_of_memory", type(error).__name__)
emit("after", tensor_digest(torch.arange(1000, device=device).float().sqrt()))

free, total_bytes = torch.cuda.mem_get_info()
emit("mem_get_info", total_bytes, 0 < free < total_bytes)
del model, optimizer, images, labels, loss, a, b, total, there
torch.cuda.synchronize()
torch.cuda.empty_cache()
emit("emptied", tensor_digest(torch.ones(10, device=device)))
write_figures(options.json, torch_figures(torch))

"""PyTorch on its stream-ordered backend, chosen by `PYTORCH_CUDA_ALLOC_CONF` or by our takeover: what it
says of its memory, its limits and errors, side streams. The same lines over the driver's pool and ours."""

from common import arguments, deterministic_torch, emit, tensor_digest, torch_figures, write_figures

options = arguments()
torch = deterministic_torch()
cuda = torch.cuda
device = torch.device("cuda")
MIB, GIB = 1 << 20, 1 << 30


def block(size):
    return torch.empty(size, dtype=torch.uint8, device=device)


def memory(name):
    """Bytes allocated now and at most are the same for everyone; bytes reserved must cover them."""
    now, most = cuda.memory_allocated(), cuda.max_memory_allocated()
    emit(name, now, most, cuda.memory_reserved() >= now, cuda.max_memory_reserved() >= most)


def refused(make):
    """The name of the error with which an allocation fails; what it gave is dropped."""
    try:
        make()
        return "none"
    except RuntimeError as error:
        return type(error).__name__


def fill(size):
    """Blocks of a size until there are no more."""
    blocks = []
    while True:
        try:
            blocks.append(block(size))
        except cuda.OutOfMemoryError:
            return blocks


emit("backend", cuda.get_allocator_backend())
first = block(100 * MIB + 1)
memory("one")
second, third = block(1), block(30 * MIB)
memory("three")
del third
memory("two")
cuda.reset_peak_memory_stats()
memory("peak reset")
third = block(7 * MIB)
memory("three again")
del first, second, third
cuda.synchronize()
memory("none")

cuda.reset_peak_memory_stats()
blocks = [block(64 * MIB) for _ in range(32)]
del blocks[3:]
cuda.synchronize()
before = cuda.memory_reserved()
cuda.empty_cache()
after = cuda.memory_reserved()
memory("emptied")
emit("emptied, reserved", before >= 2 * GIB, after - cuda.memory_allocated() <= 64 * MIB)
emit("peak of reserved stays", cuda.max_memory_reserved() >= 2 * GIB)
del blocks
cuda.synchronize()
cuda.empty_cache()
emit("emptied again", cuda.memory_allocated(), cuda.memory_reserved() <= 32 * MIB)

free, total = cuda.mem_get_info()
large = block(GIB)
less = cuda.mem_get_info()[0]
emit("mem_get_info", total, abs(free - less - GIB) <= 64 * MIB)
del large
cuda.synchronize()
cuda.empty_cache()
emit("mem_get_info back", abs(cuda.mem_get_info()[0] - free) <= 64 * MIB)

emit("10 TB", refused(lambda: block(10 << 40)), cuda.memory_allocated())
cuda.set_per_process_memory_fraction(0.1)
blocks = fill(512 * MIB)
emit("a tenth", len(blocks), cuda.memory_allocated(), refused(lambda: block(total // 5)))
del blocks
cuda.set_per_process_memory_fraction(1.0)
emit("after a tenth", tensor_digest(torch.arange(1 << 20, device=device).sqrt()))

cuda.synchronize()
cuda.empty_cache()
free = cuda.mem_get_info()[0]
blocks = fill(GIB)
emit("all of it", -2 <= len(blocks) - free // GIB <= 0, refused(lambda: block(8 * GIB)))
blocks[0].fill_(7)
emit("the first block", tensor_digest(blocks[0][:4096]))
del blocks
cuda.synchronize()
# Other sizes, in what was just given back.
blocks = [block((100 + number % 900) * MIB) for number in range(40)]
emit("carried on", (torch.ones(1 << 22, device=device) * 3).sum().item())
del blocks
cuda.synchronize()
cuda.empty_cache()
cuda.reset_peak_memory_stats()

# Tensors made on one stream, used on others, dropped while those still work on them.
side = [cuda.Stream() for _ in range(3)]
total = torch.zeros(1, device=device, dtype=torch.float64)
for turn in range(options.steps * 10):
    source = torch.full(((turn % 9 + 1) << 18,), float(turn % 13), device=device)
    with cuda.stream(side[turn % 3]):
        cuda.current_stream().wait_stream(cuda.default_stream())
        source.record_stream(cuda.current_stream())
        part = (source.double() * 2).sum()
    cuda.default_stream().wait_stream(side[turn % 3])
    part.record_stream(cuda.default_stream())
    total += part
    del source, part
emit("streams", total.item())
memory("after streams")

# A little training, in all sizes.
model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 10)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(options.steps * 3):
    inputs = torch.randn(64 * (1 + step * 7 % 11), 512, device=device)
    loss = model(inputs).square().mean()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    emit("loss", step, loss.item())
memory("after training")
write_figures(options.json, torch_figures(torch) | {
    "backend": cuda.get_allocator_backend(), "reserved_before": before, "reserved_after": after,
})

"""PyTorch: what its own allocator can do, with memory that comes and goes in between: graphed callables, streams, a cache
that is emptied, limits and errors, pools, a history of memory. The same lines on every allocator."""

from common import arguments, deterministic_torch, emit, tensor_digest, torch_figures, write_figures

options = arguments(steps=20)
torch = deterministic_torch()
cuda = torch.cuda
device = torch.device("cuda")
MIB = 1 << 20
kept = []


def churn(turn):
    """Memory of other sizes comes and goes, so that pages without a tensor serve others; some stays for a while."""
    sizes = [((turn * 7919 + each * 104729) % 61 + 1) * MIB // 4 for each in range(12)]
    made = [torch.full((size,), float(turn + each), device=device) for each, size in enumerate(sizes)]
    kept.append((made[turn % len(made)], float(turn + turn % len(made))))
    del made
    if len(kept) > 5:
        tensor, value = kept.pop(turn % 3)
        emit("kept", turn, bool((tensor == value).all()))


def graphed():
    """Training through make_graphed_callables: forward and backward are graphs."""
    torch.manual_seed(4)
    model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 64)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    sample = torch.randn(256, 512, device=device)
    callable_ = cuda.make_graphed_callables(model, (sample,))
    for turn in range(options.steps):
        inputs = torch.randn(256, 512, device=device)
        optimizer.zero_grad(set_to_none=True)
        loss = callable_(inputs).square().mean()
        loss.backward()
        optimizer.step()
        churn(turn)
        emit("graphed", turn, loss.item())
    emit("graphed weights", tensor_digest(torch.cat([p.reshape(-1) for p in model.parameters()])))


def streams():
    """Tensors of one stream that another one uses while they are freed."""
    side, other = cuda.Stream(), cuda.Stream()
    total = torch.zeros((), device=device)
    for turn in range(options.steps):
        tensor = torch.full((8 * MIB,), float(turn), device=device)
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            cuda._sleep(2_000_000)
            result = tensor.sum()
            tensor.record_stream(side)
        del tensor
        other.wait_stream(side)
        with cuda.stream(other):
            result.record_stream(other)
            total += result
        churn(turn)
    cuda.current_stream().wait_stream(other)
    emit("streams", total.item())


def fails(make):
    """The name of the error with which an allocation fails."""
    try:
        make()
    except RuntimeError as error:
        return type(error).__name__
    return "none"


def errors():
    """A request that no device can meet, and one beyond PyTorch's own limit; then work goes on."""
    emit("too much", fails(lambda: torch.empty(1 << 44, dtype=torch.uint8, device=device)))
    churn(100)
    cuda.empty_cache()
    total = cuda.get_device_properties(0).total_memory
    cuda.set_per_process_memory_fraction((cuda.memory_reserved() + 256 * MIB) / total)
    emit("beyond the fraction", fails(lambda: torch.empty(512 * MIB, dtype=torch.uint8, device=device)))
    cuda.set_per_process_memory_fraction(1.0)
    big = torch.full((128 * MIB,), 3.0, device=device)
    emit("after it", big[::MIB].sum().item())


def cache():
    """The cache is emptied, and memory comes again."""
    before = torch.arange(4 * MIB, device=device)
    for turn in range(5):
        churn(200 + turn)
        cuda.empty_cache()
        emit("emptied", turn, tensor_digest(before), cuda.memory_reserved() >= cuda.memory_allocated())


def pools():
    """A pool of the program's own, and a history of what was allocated."""
    pool = cuda.MemPool()
    with cuda.use_mem_pool(pool):
        inside = torch.full((5 * MIB,), 7.0, device=device)
    churn(300)
    emit("pool", inside.sum().item())
    del inside
    cuda.memory._record_memory_history(max_entries=1000)
    tensor = torch.ones(3 * MIB, device=device)
    snapshot = cuda.memory._snapshot()
    cuda.memory._record_memory_history(enabled=None)
    actions = {entry["action"] for trace in snapshot["device_traces"] for entry in trace}
    emit("history", "alloc" in actions, len(snapshot["segments"]) > 0, tensor.sum().item())


for feature in (graphed, streams, errors, cache, pools):
    feature()
kept.clear()
cuda.synchronize()
cuda.empty_cache()
emit("allocated at the end", cuda.memory_allocated() < 64 * MIB)
write_figures(options.json, torch_figures(torch))

"""PyTorch: CUDA graphs replayed many times, one by itself and three on one memory pool, with memory of
other sizes made and dropped between the replays, on the same stream and on another."""

from common import arguments, deterministic_torch, emit, tensor_digest, write_figures

options = arguments(replays=1000)
torch = deterministic_torch()
device = torch.device("cuda")
side = torch.cuda.Stream()
kept = []


def churn(turn):
    """Memory comes and goes; none of it may be a graph's. Some stays for a while."""
    size = ((turn * 7919) % 31 + 1) << 16
    kept.append(torch.full((size,), float(turn), device=device))
    with torch.cuda.stream(side):
        other = torch.full((size * 3,), float(turn), device=device)
        other += 1
    del other
    if len(kept) > turn % 7:
        del kept[turn % len(kept)]


model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 64)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs = torch.randn(64, 256, device=device)
targets = torch.randn(64, 64, device=device)


def step():
    optimizer.zero_grad(set_to_none=True)
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss


# The warm-up on a side stream that the documentation asks for.
warm = torch.cuda.Stream()
warm.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(warm):
    for _ in range(3):
        step()
torch.cuda.current_stream().wait_stream(warm)

dropped = torch.ones(1 << 20, device=device)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    # Freed while the stream captures, without a part in the graph.
    del dropped
    loss = step()
for turn in range(options.replays):
    inputs.copy_(torch.randn(64, 256, device=device))
    churn(turn)
    graph.replay()
    if turn % 50 == 49:
        emit("one", turn, loss.item())
emit("one weights", tensor_digest(torch.cat([p.reshape(-1) for p in model.parameters()])))

pool = torch.cuda.graph_pool_handle()
graphs = [torch.cuda.CUDAGraph() for _ in range(3)]
with torch.cuda.graph(graphs[0], pool=pool):
    middle = torch.relu(inputs @ inputs.t())
with torch.cuda.graph(graphs[1], pool=pool):
    wide = torch.cat([middle * 2, middle.t()])
with torch.cuda.graph(graphs[2], pool=pool):
    result = (wide * 3).sum(0)
for turn in range(options.replays):
    inputs.copy_(torch.randn(64, 256, device=device))
    for each in graphs:
        each.replay()
        churn(turn)
    if turn % 50 == 49:
        emit("shared pool", turn, tensor_digest(result))
emit("kept", [int(tensor[0].item()) for tensor in kept])
del kept[:]
torch.cuda.synchronize()
# What the graphs allocated goes before them, the gradients included.
del loss, middle, wide, result
optimizer.zero_grad(set_to_none=True)
del graph, graphs
torch.cuda.empty_cache()
emit("done", tensor_digest(torch.ones(5, device=device)))
write_figures(options.json, {"backend": torch.cuda.get_allocator_backend()})

"""PyTorch: a CUDA graph of a training step, replayed, with eager allocations between replays."""

from common import arguments, deterministic_torch, emit, tensor_digest, torch_figures, write_figures

options = arguments()
torch = deterministic_torch()
device = torch.device("cuda")

model = torch.nn.Sequential(
    torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 64)
).to(device)
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
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        step()
torch.cuda.current_stream().wait_stream(side)

graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    loss = step()

for turn in range(options.steps * 10):
    inputs.copy_(torch.randn(64, 256, device=device))
    graph.replay()
    # Memory of other sizes comes and goes between replays; none of it may be the graph's.
    churn = torch.full(((turn % 7 + 1) << 18,), float(turn), device=device)
    del churn
    if turn % 10 == 9:
        emit("replay", turn, loss.item())
emit("weights", tensor_digest(torch.cat([p.reshape(-1) for p in model.parameters()])))

# Two graphs on one memory pool, replayed in turn.
pool = torch.cuda.graph_pool_handle()
first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
with torch.cuda.graph(first, pool=pool):
    middle = torch.relu(inputs @ inputs.t())
with torch.cuda.graph(second, pool=pool):
    result = (middle * 2).sum()
for turn in range(options.steps):
    inputs.copy_(torch.randn(64, 256, device=device))
    first.replay()
    second.replay()
    emit("shared_pool", turn, result.item())
del graph, first, second, middle, result, loss
torch.cuda.empty_cache()
emit("done", tensor_digest(torch.ones(5, device=device)))
write_figures(options.json, torch_figures(torch))

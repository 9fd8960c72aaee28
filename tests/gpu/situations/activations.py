"""The script of the article on activations: the model's parameters, and what its forward pass leaves in memory."""

import torch
from torch import nn
from torch.cuda import nvtx
from truth import tell


class MyModel(nn.Module):
    """Five layers without an activation between them."""

    def __init__(self):
        super().__init__()
        self.net1, self.net2, self.net3 = nn.Linear(3, 300), nn.Linear(300, 300), nn.Linear(300, 400)
        self.net4, self.net5 = nn.Linear(400, 300), nn.Linear(300, 100)
        self.activation_size = 0

    def forward(self, x):
        for net in (self.net1, self.net2, self.net3, self.net4, self.net5):
            x = net(x)
            self.activation_size += x.nelement() * x.element_size()
        return x


def main():
    device = torch.device("cuda")
    # cuBLAS takes a workspace at its first call; the article's PyTorch did not count it.
    with torch.no_grad():
        nn.Linear(8, 8).to(device)(torch.zeros(8, 8, device=device))
    workspace = torch.cuda.memory_allocated()
    with nvtx.range("inputs"):
        input = torch.randn(10, 3).to(device)
        label = torch.randn(10, 100).to(device)
    before = torch.cuda.memory_allocated()
    with nvtx.range("model"):
        model = MyModel().to(device)
    built = torch.cuda.memory_allocated()
    loss_fn = nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with nvtx.range("forward"):
        output = model(input)
    nvtx.mark("after forward")
    after = torch.cuda.memory_allocated()
    print("before the model", before - workspace)
    print("with the model", built - workspace)
    print("after the forward pass", after - workspace)
    print("intermediate activations", after - built, "of which", model.activation_size, "are values")
    with nvtx.range("backward"):
        loss_fn(output, label).backward()
    with nvtx.range("step"):
        optimizer.step()
    tell(inputs=before - workspace, model=built - before, forward=after - built, workspace=workspace, function="MyModel.forward")


main()

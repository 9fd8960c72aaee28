"""A training whose evaluation keeps its graphs: recorded by scripts/screen, and by tests/docs/check.py."""

import os
import sys
import time

sys.path.insert(0, os.environ["TINYTORCH"])
import tinytorch
from tinytorch import Adam, Linear, Tensor, backward, mean

BATCH = 64 << 20


class Net:
    def __init__(self):
        self.layers = [Linear(4096), Linear(4096), Linear(4096)]

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return mean(x)


def evaluate(net):
    return net.forward(Tensor(BATCH))


def train(steps):
    net = Net()
    optimizer = Adam(net.layers)
    history = []
    for _ in range(steps):
        loss = net.forward(Tensor(BATCH))
        backward(loss, net.layers)
        optimizer.step()
        optimizer.zero_grad()
        history.append(evaluate(net))
        time.sleep(0.005)


tinytorch.start()
train(40)

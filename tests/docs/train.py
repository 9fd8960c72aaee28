"""A training that keeps the outputs of its evaluations: recorded by tests/docs/check.py."""

import os
import sys
import time

sys.path.insert(0, os.environ["TINYTORCH"])
import tinytorch
from tinytorch import Adam, Linear, Tensor, backward, mean

BATCH = 64 << 20


class Model:
    def __init__(self):
        self.layers = [Linear(4096), Linear(4096), Linear(4096)]

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def evaluate(model):
    return model.forward(Tensor(BATCH)).detach()


def train_step(model, optimizer):
    mask = Tensor(4 << 20)
    loss = mean(model.forward(Tensor(BATCH)))
    backward(loss, model.layers)
    optimizer.step()
    optimizer.zero_grad()
    del mask


def train(steps):
    model = Model()
    optimizer = Adam(model.layers)
    for _ in range(steps):
        train_step(model, optimizer)
        history.append(evaluate(model))
        time.sleep(0.005)


history = []
tinytorch.start()
train(40)

"""A large teacher is trained, labels a transfer set and goes; a small student then learns from its labels."""
import gc

import torch
from torch import nn
from torch.nn import functional as F

FEATURES, CLASSES, BATCH, TRANSFER = 1024, 64, 512, 8192
TEACHER_STEPS, STUDENT_STEPS = 30, 60


def network(width, depth):
    layers = [nn.Linear(FEATURES, width), nn.GELU()]
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(width, CLASSES)).cuda()


class Examples:
    def __init__(self):
        self.rule = torch.randn(FEATURES, CLASSES, device="cuda")
        self.transfer = torch.randn(TRANSFER, FEATURES, device="cuda")

    def batch(self):
        x = torch.randn(BATCH, FEATURES, device="cuda")
        return x, (x @ self.rule).argmax(1)


def train_teacher(examples, allocated):
    teacher = network(4096, 8)
    optimizer = torch.optim.AdamW(teacher.parameters(), lr=1e-4)
    for _ in range(TEACHER_STEPS):
        x, y = examples.batch()
        optimizer.zero_grad()
        F.cross_entropy(teacher(x), y).backward()
        optimizer.step()
        allocated.append(torch.cuda.memory_allocated())
    return teacher.eval()


@torch.no_grad()
def soften(teacher, examples, temperature=2.0):
    return torch.cat([(teacher(part) / temperature).softmax(1) for part in examples.transfer.split(1024)])


def train_student(student, examples, soft_labels, allocated):
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)
    for _ in range(STUDENT_STEPS):
        chosen = torch.randint(0, TRANSFER, (BATCH,), device="cuda")
        optimizer.zero_grad()
        loss = F.kl_div(student(examples.transfer[chosen]).log_softmax(1), soft_labels[chosen], reduction="batchmean")
        loss.backward()
        optimizer.step()
        allocated.append(torch.cuda.memory_allocated())
    return loss.item()


def main():
    torch.manual_seed(6)
    examples, large, small = Examples(), [], []
    teacher = train_teacher(examples, large)
    soft_labels = soften(teacher, examples)
    del teacher
    gc.collect()
    loss = train_student(network(256, 2), examples, soft_labels, small)
    print(f"student's loss {loss:.4f}; in use: teacher {large[-1] >> 20} MiB, student {small[-1] >> 20} MiB")
    half = STUDENT_STEPS // 2
    rate = (small[-1] - small[half]) // (STUDENT_STEPS - 1 - half)
    print(f"TRUTH allocated_growth_per_iter={rate} peak={torch.cuda.max_memory_allocated()} "
          f"reserved={torch.cuda.max_memory_reserved()}")


main()

"""Memory that suddenly drops: a teacher is no longer needed halfway, and the cache is emptied."""

import torch
from torch import nn
from torch.cuda import nvtx
from truth import tell

WIDTH, BATCH, STEPS = 1024, 256, 40


def layers(count, width):
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(count)))


def load_teacher():
    return layers(8, 4 * WIDTH).to("cuda").requires_grad_(False)


def main():
    teacher, student = load_teacher(), layers(4, WIDTH).to("cuda")
    size = sum(parameter.nelement() * 4 for parameter in teacher.parameters())
    optimizer = torch.optim.Adam(student.parameters())
    for step in range(STEPS):
        if step == STEPS // 2:
            nvtx.mark("before the drop")
            with nvtx.range("end of distillation"):
                teacher = None
                torch.cuda.empty_cache()
        x = torch.randn(BATCH, WIDTH, device="cuda")
        target = teacher(x.repeat(1, 4))[:, :WIDTH] if teacher else x
        nn.functional.mse_loss(student(x), target).backward()
        optimizer.step()
        optimizer.zero_grad()
    tell(planted=size, function="load_teacher")


main()

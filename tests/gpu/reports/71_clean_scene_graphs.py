"""Random scene graphs for a renderer that makes training pictures. Nodes know their parent, attributes know their node."""
import gc
import random

import torch

STEPS, SIDE = 120, 256
NAMES = ("position", "rotation", "scale", "colour", "roughness", "visible")


class Attribute:
    def __init__(self, node, name, value):
        self.node, self.name, self.value = node, name, value


class Node:
    def __init__(self, parent=None):
        self.parent, self.children = parent, []
        self.attributes = [Attribute(self, name, random.random()) for name in NAMES]
        self.texture = torch.rand(4, SIDE, SIDE, device="cuda")
        if parent is not None:
            parent.children.append(self)

    def value(self, name):
        return next(attribute.value for attribute in self.attributes if attribute.name == name)

    def walk(self):
        yield self
        for child in self.children:
            yield from child.walk()


def random_scene(nodes):
    root = Node()
    known = [root]
    while len(known) < nodes:
        known.append(Node(random.choice(known)))
    return root


class Renderer:
    def __init__(self):
        self.lens = torch.nn.Conv2d(4, 3, 5, padding=2).cuda()

    @torch.no_grad()
    def render(self, scene):
        canvas = torch.zeros(4, SIDE, SIDE, device="cuda")
        for node in scene.walk():
            opacity = 0.2 + 0.8 * node.value("visible")
            shift = int(SIDE * node.value("position"))
            canvas.mul_(1 - opacity).add_(node.texture.roll(shift, dims=2), alpha=opacity)
        return self.lens(canvas[None])


def main():
    random.seed(5)
    renderer, allocated, brightness = Renderer(), [], 0.0
    renderer.render(random_scene(4)).mean().item()
    gc.collect()
    before = torch.cuda.memory_allocated()
    for _ in range(STEPS):
        picture = renderer.render(random_scene(random.randint(4, 10)))
        brightness += picture.mean().item()
        del picture
        allocated.append(torch.cuda.memory_allocated())
    print(f"brightness {brightness / STEPS:.4f}, in use {min(allocated) >> 20} to {max(allocated) >> 20} MiB")
    gc.collect()
    rate = (torch.cuda.memory_allocated() - before) // STEPS
    print(f"TRUTH allocated_growth_per_iter={rate} peak={torch.cuda.max_memory_allocated()} "
          f"reserved={torch.cuda.max_memory_reserved()}")


main()

"""Stacks that come again: the same functions in turn, others over the same native frames, code that is made anew.

Recorded lines are as cuda.py describes.
"""

import sys
import threading

sys.path.insert(0, __file__.rsplit("/", 1)[0])
import cuda

# Each is compiled anew in every round, in the same file and with the same name: the code object may get the
# address of the one before, whose lines were others.
TEMPLATE = "\n" * 40 + "def made(hit):\n{}    hit()\n"


class Layer:
    def __init__(self, recorder):
        self.recorder = recorder

    def __call__(self, number):
        self.recorder.hit(number)
        if number % 3 == 0:
            self.recorder.hit(number)

    def twice(self, number):
        self.recorder.hit(number)
        self.recorder.hit(number)


def generator(layer, count):
    for number in range(count):
        layer(number)
        yield number


def descend(layer, depth):
    if depth == 0:
        layer(1)
        layer.twice(1)
    else:
        descend(layer, depth - 1)


def rounds(recorder):
    layer = Layer(recorder)
    for step in range(60):
        for number in range(4):
            layer(number)
        layer(step)
        layer.twice(step)
        if step % 7 == 0:
            layer(0)
        list(generator(layer, 3))
        [layer(number) for number in range(2)]
        for depth in (0, 3, 1, step % 5):
            descend(layer, depth)
        space = {}
        exec(compile(TEMPLATE.format("    pass\n" * (step % 3)), "made.py", "exec"), space)
        for _ in range(3):
            space["made"](recorder.hit)


def on_a_thread(recorder):
    cuda.on_thread()
    rounds(recorder)


cuda.start()
recorders = [cuda.Recorder(1 << 20), cuda.Recorder(1 << 24)]
rounds(recorders[0])
thread = threading.Thread(target=on_a_thread, args=(recorders[1],))
thread.start()
thread.join()
for recorder in recorders:
    recorder.flush()

"""Motion in a video by CuPy: each frame's luma is compared with that of the frame before."""
import cupy as cp
import numpy as np

FRAMES, HEIGHT, WIDTH = 60, 1080, 1920

luma_of = cp.ElementwiseKernel(
    "uint8 r, uint8 g, uint8 b", "float32 y",
    "y = 0.2126f * r + 0.7152f * g + 0.0722f * b", "luma_of",
)
difference = cp.ReductionKernel(
    "float32 a, float32 b", "float32 total", "fabsf(a - b)", "a + b", "total = a", "0", "difference",
)


class Camera:
    """Stands for a decoder: a few different frames in host memory, again and again."""

    def __init__(self, kinds=4):
        rng = np.random.default_rng(5)
        self.frames = [rng.integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8) for _ in range(kinds)]

    def read(self):
        number = 0
        while True:
            yield number, self.frames[number % len(self.frames)]
            number += 1


class MotionDetector:
    def __init__(self, threshold):
        self.threshold = threshold
        self.history = {}
        self.events = []

    def update(self, number, frame):
        pixels = cp.asarray(frame)
        luma = luma_of(pixels[..., 0], pixels[..., 1], pixels[..., 2])
        self.history[number] = luma
        before = self.history.get(number - 1)
        if before is None:
            return 0.0
        motion = float(difference(luma, before)) / luma.size
        if motion > self.threshold:
            self.events.append(number)
        return motion


def main():
    pool = cp.get_default_memory_pool()
    detector, used = MotionDetector(threshold=70.0), []
    for number, frame in Camera().read():
        if number == FRAMES:
            break
        detector.update(number, frame)
        cp.cuda.Device().synchronize()
        used.append(pool.used_bytes())
    half = FRAMES // 2
    rate = (used[-1] - used[half]) // (FRAMES - 1 - half)
    print("frames with motion:", len(detector.events))
    print(f"TRUTH allocated_growth_per_iter={rate} peak={max(used)} reserved={pool.total_bytes()}")


main()

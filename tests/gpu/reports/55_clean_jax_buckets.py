"""JAX on texts whose lengths are padded to six buckets: each bucket is compiled once, then come sixty steps."""
import os

os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
os.environ["XLA_PYTHON_CLIENT_ALLOCATOR"] = "platform"

import random

import jax
import jax.numpy as jnp

BUCKETS = (128, 192, 256, 384, 512, 768)
STEPS, BATCH, WIDTH, RATE = 60, 32, 512, 1e-3


def init(key):
    first, second = jax.random.split(key)
    return {
        "up": jax.random.normal(first, (WIDTH, 4 * WIDTH)) * WIDTH**-0.5,
        "down": jax.random.normal(second, (4 * WIDTH, WIDTH)) * (4 * WIDTH) ** -0.5,
    }


def loss_of(params, x):
    hidden = jax.nn.gelu(x @ params["up"])
    return jnp.mean(jnp.square(hidden @ params["down"] - x))


@jax.jit
def update(params, x):
    loss, grads = jax.value_and_grad(loss_of)(params, x)
    return jax.tree_util.tree_map(lambda p, g: p - RATE * g, params, grads), loss


def batch(key, length):
    return jax.random.normal(key, (BATCH, length, WIDTH))


def live_bytes():
    return sum(array.nbytes for array in jax.live_arrays())


class Trainer:
    def __init__(self, seed):
        self.key = jax.random.PRNGKey(seed)
        self.params = init(self.key)
        self.losses = []

    def step(self, length):
        self.key, part = jax.random.split(self.key)
        self.params, loss = update(self.params, batch(part, length))
        self.losses.append(float(loss))

    def warm_up(self):
        for length in BUCKETS:
            self.step(length)


def main():
    trainer, live = Trainer(7), []
    trainer.warm_up()
    random.seed(7)
    for _ in range(STEPS):
        trainer.step(random.choice(BUCKETS))
        live.append(live_bytes())
    half = STEPS // 2
    rate = (live[-1] - live[half]) // (STEPS - 1 - half)
    print("last loss:", trainer.losses[-1])
    print(f"TRUTH allocated_growth_per_iter={rate} peak={max(live)} reserved={max(live)}")


main()

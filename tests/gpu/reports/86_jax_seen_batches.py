"""Regression with JAX. The batches are remembered by step, so that one with a strange loss can be looked at again."""
import os

os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
os.environ["XLA_PYTHON_CLIENT_ALLOCATOR"] = "platform"

import jax
import jax.numpy as jnp
import numpy as np

STEPS, BATCH, FEATURES, HIDDEN = 20, 2048, 512, 1024


def initial(key):
    one, two = jax.random.split(key)
    return {
        "w1": jax.random.normal(one, (FEATURES, HIDDEN)) / FEATURES ** 0.5,
        "b1": jnp.zeros(HIDDEN),
        "w2": jax.random.normal(two, (HIDDEN,)) / HIDDEN ** 0.5,
    }


def loss_of(params, x, y):
    hidden = jnp.tanh(x @ params["w1"] + params["b1"])
    return jnp.mean(jnp.square(hidden @ params["w2"] - y))


@jax.jit
def update(params, x, y):
    loss, grads = jax.value_and_grad(loss_of)(params, x, y)
    return jax.tree_util.tree_map(lambda p, g: p - 0.05 * g, params, grads), loss


class Recorder:
    def __init__(self, device):
        self.device = device
        self.batches = {}
        self.losses = {}

    def place(self, step, x, y):
        """Puts a batch on the device."""
        self.batches[step] = (jax.device_put(x, self.device), jax.device_put(y, self.device))
        return self.batches[step]

    def strangest(self, params):
        step = max(self.losses, key=self.losses.get)
        return step, float(loss_of(params, *self.batches[step]))


def sensor(rng):
    weights = rng.standard_normal(FEATURES, dtype=np.float32) / np.float32(FEATURES ** 0.5)
    while True:
        x = rng.standard_normal((BATCH, FEATURES), dtype=np.float32)
        yield x, x @ weights


def main():
    params = initial(jax.random.PRNGKey(0))
    recorder, stream, live = Recorder(jax.devices()[0]), sensor(np.random.default_rng(8)), []
    for step in range(STEPS):
        x, y = recorder.place(step, *next(stream))
        params, loss = update(params, x, y)
        recorder.losses[step] = float(loss)
        live.append(sum(array.nbytes for array in jax.live_arrays()))
    half = STEPS // 2
    rate = (live[-1] - live[half]) // (STEPS - 1 - half)
    print("strangest batch, and its loss now:", recorder.strangest(params))
    print(f"TRUTH allocated_growth_per_iter={rate} peak={max(live)} reserved={max(live)}")


main()

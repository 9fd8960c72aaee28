"""JAX: a jitted training loop; run with the default allocator and with `platform`.

XLA picks its kernels by timing them, so sums of fractions would differ in the last bits from run to
run. All values here are small whole numbers, which every kernel adds exactly."""

from common import arguments, digest, emit

import jax
import jax.numpy as jnp

options = arguments()
emit("platform", jax.devices()[0].platform)


@jax.jit
def step(weights, inputs, targets):
    def score(w):
        hidden = jax.nn.relu(inputs @ w[0])
        return jnp.sum((hidden @ w[1]) * targets)

    value, slope = jax.value_and_grad(score)(weights)
    return value, [jnp.clip(w - jnp.sign(s), -4, 4) for w, s in zip(weights, slope)]


def whole(key, *shape):
    """Random whole numbers from -2 to 2, as floats."""
    return jax.random.randint(key, shape, -2, 3).astype(jnp.float32)


keys = jax.random.split(jax.random.PRNGKey(0), 2 + 2 * options.steps)
weights = [whole(keys[0], 64, 128), whole(keys[1], 128, 8)]
for turn in range(options.steps):
    # Three shapes in turn, so that buffers of several sizes come and go.
    rows = 64 << (turn % 3)
    inputs, targets = whole(keys[2 + 2 * turn], rows, 64), whole(keys[3 + 2 * turn], rows, 8)
    value, weights = step(weights, inputs, targets)
    emit("score", turn, float(value))
emit("weights", digest(weights[0]), digest(weights[1]))

"""A field that evolves in time, in JAX. The states are collected, to make a film of them at the end."""
import os

os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
os.environ["XLA_PYTHON_CLIENT_ALLOCATOR"] = "platform"

import jax
import jax.numpy as jnp

STEPS, SIZE, INNER = 6, 4096, 20


@jax.jit
def evolve(field, key):
    """INNER small steps of diffusion with noise."""
    noise = 0.01 * jax.random.normal(key, field.shape, dtype=field.dtype)

    def small_step(_, state):
        around = (jnp.roll(state, 1, 0) + jnp.roll(state, -1, 0) + jnp.roll(state, 1, 1) + jnp.roll(state, -1, 1))
        return state + 0.2 * (around - 4.0 * state)

    return jax.lax.fori_loop(0, INNER, small_step, field + noise)


@jax.jit
def energy(field):
    return jnp.mean(jnp.square(field))


def live_bytes():
    return sum(array.nbytes for array in jax.live_arrays())


def film(states):
    """One small picture of each state."""
    return [jax.device_get(state[::256, ::256]) for state in states]


def simulate():
    key = jax.random.PRNGKey(3)
    field = jnp.zeros((SIZE, SIZE), dtype=jnp.float32)
    states, live = [], []
    for step in range(STEPS):
        key, part = jax.random.split(key)
        field = evolve(field, part)
        states.append(field)
        print(f"step {step}: energy {float(energy(field)):.3e}")
        live.append(live_bytes())
    return states, live


def main():
    states, live = simulate()
    pictures = film(states)
    half = STEPS // 2
    rate = (live[-1] - live[half]) // (STEPS - 1 - half)
    print("pictures:", len(pictures))
    print(f"TRUTH allocated_growth_per_iter={rate} peak={max(live)} reserved={max(live)}")


main()

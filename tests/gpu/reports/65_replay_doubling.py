"""An agent's replay storage on the GPU, without a bound: when it is full, its capacity doubles."""
import torch
from torch import nn

STEPS, ROLLOUT, STATE, ACTIONS = 40, 1024, 1024, 8


class ReplayStorage:
    def __init__(self, capacity):
        self.size = 0
        self.fields = {
            "state": torch.empty(capacity, STATE, device="cuda"),
            "action": torch.empty(capacity, ACTIONS, device="cuda"),
            "reward": torch.empty(capacity, 1, device="cuda"),
        }

    @property
    def capacity(self):
        return self.fields["state"].shape[0]

    def _grow(self):
        for name, old in self.fields.items():
            new = torch.empty(2 * old.shape[0], old.shape[1], device=old.device)
            new[: self.size] = old[: self.size]
            self.fields[name] = new

    def extend(self, **rows):
        count = next(iter(rows.values())).shape[0]
        while self.size + count > self.capacity:
            self._grow()
        for name, values in rows.items():
            self.fields[name][self.size : self.size + count] = values
        self.size += count

    def sample(self, count):
        chosen = torch.randint(0, self.size, (count,), device="cuda")
        return {name: field[chosen] for name, field in self.fields.items()}


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.policy = nn.Sequential(nn.Linear(STATE, 256), nn.Tanh(), nn.Linear(256, ACTIONS))
        self.value = nn.Sequential(nn.Linear(STATE, 256), nn.Tanh(), nn.Linear(256, 1))

    @torch.no_grad()
    def act(self, state):
        return self.policy(state)

    def loss(self, batch):
        advantage = batch["reward"] - self.value(batch["state"])
        wrong = (self.policy(batch["state"]) - batch["action"]).square().mean(1, keepdim=True)
        return (advantage.square() + wrong * advantage.detach().exp().clamp(max=5)).mean()


def main():
    agent, storage, allocated = Agent().cuda(), ReplayStorage(4 * ROLLOUT), []
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-4)
    for _ in range(STEPS):
        state = torch.randn(ROLLOUT, STATE, device="cuda")
        storage.extend(state=state, action=agent.act(state), reward=state.mean(1, keepdim=True))
        for _ in range(4):
            optimizer.zero_grad(set_to_none=True)
            agent.loss(storage.sample(512)).backward()
            optimizer.step()
        allocated.append(torch.cuda.memory_allocated())
    half = STEPS // 2
    rate = (allocated[-1] - allocated[half]) // (STEPS - 1 - half)
    print("rows:", storage.size, "capacity:", storage.capacity)
    print(f"TRUTH allocated_growth_per_iter={rate} peak={torch.cuda.max_memory_allocated()} "
          f"reserved={torch.cuda.max_memory_reserved()} whole_run_per_iter={(allocated[-1] - allocated[0]) // (STEPS - 1)}")


main()

"""Q-learning on many environments at once. Frames stay on the GPU, the buffer holds the newest thirty transitions."""
import copy
import random
from collections import deque, namedtuple

import torch
import torch.nn.functional as F
from torch import nn

ENVIRONMENTS, ACTIONS = 256, 6
STEPS, CAPACITY, WARM_UP = 60, 30, 8

Transition = namedtuple("Transition", "state action reward following")


class Environments:
    """Stands for a simulator: four grey frames for each environment."""

    def observe(self):
        return torch.randint(0, 256, (ENVIRONMENTS, 4, 64, 64), dtype=torch.uint8, device="cuda")

    def act(self, action):
        reward = torch.rand(ENVIRONMENTS, device="cuda") - 0.1 * (action == 0)
        return self.observe(), reward


class Agent:
    def __init__(self):
        self.policy = nn.Sequential(
            nn.Conv2d(4, 16, 8, stride=4), nn.ReLU(),
            nn.Conv2d(16, 32, 4, stride=2), nn.ReLU(),
            nn.Flatten(), nn.Linear(32 * 6 * 6, ACTIONS),
        ).cuda()
        self.target = copy.deepcopy(self.policy).requires_grad_(False)
        self.optimizer = torch.optim.RMSprop(self.policy.parameters(), lr=1e-4)
        self.buffer = deque(maxlen=CAPACITY)

    @torch.no_grad()
    def choose(self, state, epsilon):
        best = self.policy(state.float() / 255).argmax(1)
        explore = torch.rand(ENVIRONMENTS, device="cuda") < epsilon
        return torch.where(explore, torch.randint_like(best, ACTIONS), best)

    def learn(self):
        chosen = random.sample(self.buffer, 4)
        state = torch.cat([one.state for one in chosen]).float() / 255
        following = torch.cat([one.following for one in chosen]).float() / 255
        action = torch.cat([one.action for one in chosen])
        reward = torch.cat([one.reward for one in chosen])
        wanted = reward + 0.99 * self.target(following).amax(1)
        got = self.policy(state).gather(1, action[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(got, wanted)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    random.seed(1)
    world, agent, allocated = Environments(), Agent(), []
    state = world.observe()
    for step in range(STEPS):
        action = agent.choose(state, max(0.05, 1 - step / 40))
        following, reward = world.act(action)
        agent.buffer.append(Transition(state, action, reward, following))
        state = following
        if len(agent.buffer) >= WARM_UP:
            agent.learn()
        if step % 10 == 0:
            agent.target.load_state_dict(agent.policy.state_dict())
        allocated.append(torch.cuda.memory_allocated())
    half = STEPS // 2
    rate = (allocated[-1] - allocated[half]) // (STEPS - 1 - half)
    print("transitions held:", len(agent.buffer), "rise while it filled:", allocated[half] - allocated[0])
    print(f"TRUTH allocated_growth_per_iter={rate} peak={torch.cuda.max_memory_allocated()} "
          f"reserved={torch.cuda.max_memory_reserved()}")


main()

"""Policy gradient on random episodes. The collector runs by hand each 50 episodes, so that none of them is interrupted."""
import gc

import torch
from torch import nn

EPISODES, LENGTH, ACTORS, OBSERVED, ACTIONS, COLLECT_EVERY = 150, 3, 1024, 512, 16, 50


class Transition:
    def __init__(self, episode, observation):
        self.episode = episode
        self.observation = observation
        self.log_prob = None
        self.reward = None

    @property
    def position(self):
        return self.episode.transitions.index(self)


class Episode:
    def __init__(self):
        self.transitions = []

    def play(self, policy):
        for _ in range(LENGTH):
            transition = Transition(self, torch.randn(ACTORS, OBSERVED, device="cuda"))
            chosen = torch.distributions.Categorical(logits=policy(transition.observation))
            action = chosen.sample()
            transition.log_prob = chosen.log_prob(action)
            transition.reward = (action == transition.observation[:, :ACTIONS].argmax(1)).float()
            self.transitions.append(transition)
        return self

    def loss(self, discount=0.9):
        total = 0.0
        for transition in self.transitions:
            weight = discount ** transition.position
            total = total - weight * (transition.log_prob * (transition.reward - 1 / ACTIONS)).mean()
        return total

    def mean_reward(self):
        return sum(transition.reward.mean().item() for transition in self.transitions) / LENGTH


gc.disable()
torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(OBSERVED, 1024), nn.ReLU(), nn.Linear(1024, ACTIONS)).cuda()
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)
allocated, after_collection = [], []

for number in range(1, EPISODES + 1):
    episode = Episode().play(policy)
    loss = episode.loss()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    reward = episode.mean_reward()
    del episode, loss
    if number % COLLECT_EVERY == 0:
        gc.collect()
        after_collection.append(torch.cuda.memory_allocated())
        print(f"episode {number}: reward {reward:.3f}")
    allocated.append(torch.cuda.memory_allocated())

rate = (after_collection[-1] - after_collection[0]) // (EPISODES - COLLECT_EVERY)
print(f"TRUTH allocated_growth_per_iter={rate} peak={torch.cuda.max_memory_allocated()} "
      f"reserved={torch.cuda.max_memory_reserved()} highest_after_an_episode={max(allocated)}")

# hot `loss.backward()` 0.4
import copy
import random
from collections import deque

import torch
from torch import nn


class Memory:
    def __init__(self):
        self.rows = deque(maxlen=1000)

    def push(self, *row):
        self.rows.append(row)

    def sample(self, count):
        return random.sample(self.rows, count)


class Agent:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 2))
        self.target = copy.deepcopy(self.net)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-3)
        self.memory = Memory()

    def learn(self):
        rows = self.memory.sample(32)
        states = torch.stack([row[0] for row in rows])
        after = torch.stack([row[1] for row in rows])
        rewards = torch.stack([row[2] for row in rows])
        guess = self.net(states).max(1)[0]
        aim = rewards + 0.99 * self.target(after).max(1)[0]
        loss = nn.functional.smooth_l1_loss(guess, aim)
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.optimizer.step()
        return loss.item()


agent = Agent()
for step in range(100):
    agent.memory.push(torch.randn(4), torch.randn(4), torch.randn(()))
    if step >= 40:
        agent.learn()
    if step % 20 == 0:
        agent.target.load_state_dict(agent.net.state_dict())

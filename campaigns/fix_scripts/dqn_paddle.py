"""DQN on a pixel version of Catch (paddle at the bottom, fruit falls down)."""
import random
from collections import namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

Transition = namedtuple("Transition", ("state", "action", "reward", "next_state", "done"))

BATCH_SIZE = 32
GAMMA = 0.97
EPS_START, EPS_END, EPS_DECAY = 1.0, 0.05, 250
TARGET_UPDATE = 50
WARMUP = 200
TOTAL_STEPS = 420
SIZE = 42

random.seed(0)
np.random.seed(0)
torch.manual_seed(0)


class Catch:
    """Three actions: left, stay, right. Reward only at the end of the fall."""

    def __init__(self, size=SIZE):
        self.size = size

    def reset(self):
        self.fruit = [0, np.random.randint(3, self.size - 3)]
        self.drift = np.random.choice([-1, 0, 1])
        self.paddle = self.size // 2
        self.frames = [self._draw()] * 4
        return np.stack(self.frames)

    def _draw(self):
        img = np.zeros((self.size, self.size), dtype=np.float32)
        r, c = self.fruit
        img[r:r + 3, max(c - 1, 0):c + 2] = 1.0
        img[-2:, max(self.paddle - 4, 0):self.paddle + 5] = 0.6
        return img

    def step(self, action):
        self.paddle = int(np.clip(self.paddle + 3 * (action - 1), 4, self.size - 5))
        self.fruit[0] += 2
        self.fruit[1] = int(np.clip(self.fruit[1] + self.drift, 2, self.size - 3))
        done = self.fruit[0] >= self.size - 4
        reward = 0.0
        if done:
            reward = 1.0 if abs(self.fruit[1] - self.paddle) <= 5 else -1.0
        self.frames = self.frames[1:] + [self._draw()]
        return np.stack(self.frames), reward, done


class ReplayMemory:
    def __init__(self, capacity):
        self.capacity = capacity
        self.memory = []
        self.position = 0

    def push(self, *args):
        if len(self.memory) < self.capacity:
            self.memory.append(None)
        self.memory[self.position] = Transition(*args)
        self.position = (self.position + 1) % self.capacity

    def sample(self, batch_size):
        return random.sample(self.memory, batch_size)

    def __len__(self):
        return len(self.memory)


class DQN(nn.Module):
    def __init__(self, n_actions=3):
        super().__init__()
        self.conv1 = nn.Conv2d(4, 16, 8, stride=4)
        self.conv2 = nn.Conv2d(16, 32, 4, stride=2)
        self.fc = nn.Linear(32 * 3 * 3, 128)
        self.out = nn.Linear(128, n_actions)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        return self.out(F.relu(self.fc(x.flatten(1))))


policy_net, target_net = DQN(), DQN()
target_net.load_state_dict(policy_net.state_dict())
optimizer = optim.Adam(policy_net.parameters(), lr=5e-4)
memory = ReplayMemory(5000)


def select_action(state, t):
    eps = EPS_END + (EPS_START - EPS_END) * np.exp(-t / EPS_DECAY)
    if random.random() < eps:
        return random.randrange(3)
    with torch.no_grad():
        return policy_net(torch.from_numpy(state).unsqueeze(0)).argmax(1).item()


def optimize_model():
    batch = Transition(*zip(*memory.sample(BATCH_SIZE)))
    states = torch.tensor(batch.state, dtype=torch.float32)
    actions = torch.tensor(batch.action).unsqueeze(1)
    rewards = torch.tensor(batch.reward, dtype=torch.float32)
    next_states = torch.tensor(batch.next_state, dtype=torch.float32)
    dones = torch.tensor(batch.done, dtype=torch.float32)

    q = policy_net(states).gather(1, actions).squeeze(1)
    with torch.no_grad():
        next_q = target_net(next_states).max(1)[0]
    loss = F.smooth_l1_loss(q, rewards + GAMMA * (1 - dones) * next_q)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(policy_net.parameters(), 10.0)
    optimizer.step()
    return loss.item()


env = Catch()
state = env.reset()
returns = []
for t in range(TOTAL_STEPS):
    action = select_action(state, t)
    next_state, reward, done = env.step(action)
    memory.push(state, action, reward, next_state, done)
    state = next_state
    if done:
        returns.append(reward)
        state = env.reset()
    if t >= WARMUP:
        loss = optimize_model()
        if t % 10 == 0:
            print(f"t={t} loss={loss:.6f} mean_return={np.mean(returns[-20:]):.3f}")
    if t % TARGET_UPDATE == 0:
        target_net.load_state_dict(policy_net.state_dict())

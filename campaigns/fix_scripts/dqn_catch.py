import random
from collections import deque, namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = 3
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")

Transition = namedtuple("Transition", ("state", "action", "reward", "next_state", "done"))


class CatchEnv:
    """A ball falls down, the paddle moves left / stays / right. Observation: last 4 frames."""

    def __init__(self, size=44, stack=4):
        self.size = size
        self.frames = deque(maxlen=stack)
        self.stack = stack

    def _draw(self):
        frame = np.zeros((self.size, self.size), dtype=np.float32)
        frame[self.ball_y - 1:self.ball_y + 2, self.ball_x - 1:self.ball_x + 2] = 1.0
        frame[-3:, self.paddle - 4:self.paddle + 5] = 1.0
        return frame

    def reset(self):
        self.ball_x = np.random.randint(6, self.size - 6)
        self.drift = np.random.randint(-1, 2)
        self.ball_y = 2
        self.paddle = self.size // 2
        for _ in range(self.stack):
            self.frames.append(self._draw())
        return np.stack(self.frames)

    def step(self, action):
        self.paddle = int(np.clip(self.paddle + 3 * (action - 1), 4, self.size - 5))
        self.ball_y += 2
        self.ball_x = int(np.clip(self.ball_x + self.drift, 2, self.size - 3))
        done = self.ball_y >= self.size - 4
        reward = 0.0
        if done:
            reward = 1.0 if abs(self.ball_x - self.paddle) <= 5 else -1.0
        self.frames.append(self._draw())
        return np.stack(self.frames), reward, done


class QNet(nn.Module):
    def __init__(self, n_actions=3):
        super().__init__()
        self.conv1 = nn.Conv2d(4, 16, 8, stride=4)
        self.conv2 = nn.Conv2d(16, 32, 4, stride=2)
        self.fc1 = nn.Linear(32 * 4 * 4, 128)
        self.fc2 = nn.Linear(128, n_actions)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc2(x)


class Agent:
    def __init__(self, gamma=0.97, lr=5e-4, batch_size=32, capacity=2000):
        self.q = QNet().to(device)
        self.target = QNet().to(device)
        self.target.load_state_dict(self.q.state_dict())
        self.optimizer = torch.optim.Adam(self.q.parameters(), lr=lr)
        self.memory = deque(maxlen=capacity)
        self.gamma = gamma
        self.batch_size = batch_size
        self.updates = 0

    def act(self, state, eps):
        if random.random() < eps:
            return random.randrange(3)
        with torch.no_grad():
            x = torch.from_numpy(state).unsqueeze(0).to(device)
            return int(self.q(x).argmax(1))

    def learn(self):
        batch = Transition(*zip(*random.sample(self.memory, self.batch_size)))
        states = torch.tensor(batch.state, dtype=torch.float32, device=device)
        actions = torch.tensor(batch.action, dtype=torch.int64, device=device).unsqueeze(1)
        rewards = torch.tensor(batch.reward, dtype=torch.float32, device=device)
        next_states = torch.tensor(batch.next_state, dtype=torch.float32, device=device)
        dones = torch.tensor(batch.done, dtype=torch.float32, device=device)

        q = self.q(states).gather(1, actions).squeeze(1)
        with torch.no_grad():
            next_q = self.target(next_states).max(1).values
            expected = rewards + self.gamma * next_q * (1.0 - dones)
        loss = F.smooth_l1_loss(q, expected)

        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.q.parameters(), 10.0)
        self.optimizer.step()

        self.updates += 1
        if self.updates % 50 == 0:
            self.target.load_state_dict(self.q.state_dict())
        return loss.item()


def train(epochs=6, episodes_per_epoch=3, warmup=40):
    env, agent = CatchEnv(), Agent()
    eps = 1.0
    for epoch in range(1, epochs + 1):
        losses, score = [], 0.0
        for _ in range(episodes_per_epoch):
            state, done = env.reset(), False
            while not done:
                action = agent.act(state, eps)
                next_state, reward, done = env.step(action)
                agent.memory.append(Transition(state, action, reward, next_state, done))
                state = next_state
                score += reward
                if len(agent.memory) >= warmup:
                    losses.append(agent.learn())
            eps = max(0.1, eps * 0.93)
        mean = float(np.mean(losses)) if losses else float("nan")
        print(f"epoch {epoch}: loss {mean:.6f} updates {agent.updates} "
              f"score {score / episodes_per_epoch:+.2f} eps {eps:.2f}", flush=True)


if __name__ == "__main__":
    train()

"""Advantage actor-critic on a batch of simulated cart-poles."""
import math

import torch
import torch.nn as nn
from torch.distributions import Categorical

torch.manual_seed(1)
torch.autograd.set_detect_anomaly(True)

NUM_ENVS = 32
ROLLOUT = 16
UPDATES = 600
GAMMA = 0.99
ENTROPY_COEF = 0.01
VALUE_COEF = 0.5


class CartPoles:
    """The classic equations of motion for many poles at once."""

    def __init__(self, n):
        self.n = n
        self.state = 0.1 * torch.rand(n, 4) - 0.05
        self.age = torch.zeros(n)

    def step(self, action):
        x, dx, th, dth = self.state.unbind(1)
        force = 20.0 * action.float() - 10.0
        cos, sin = th.cos(), th.sin()
        temp = (force + 0.05 * dth**2 * sin) / 1.1
        acc_th = (9.8 * sin - cos * temp) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
        acc_x = temp - 0.05 * acc_th * cos / 1.1
        self.state = torch.stack(
            [x + 0.02 * dx, dx + 0.02 * acc_x, th + 0.02 * dth, dth + 0.02 * acc_th], 1
        )
        self.age += 1
        done = (self.state[:, 0].abs() > 2.4) | (self.state[:, 2].abs() > 12 * math.pi / 180)
        done = done | (self.age >= 200)
        fresh = 0.1 * torch.rand(self.n, 4) - 0.05
        self.state = torch.where(done[:, None], fresh, self.state)
        finished = self.age[done]
        self.age = torch.where(done, torch.zeros_like(self.age), self.age)
        return self.state, torch.ones(self.n), done.float(), finished


class ActorCritic(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.pi = nn.Linear(hidden, 2)
        self.v = nn.Linear(hidden, 1)

    def forward(self, obs):
        h = self.trunk(obs)
        return Categorical(logits=self.pi(h), validate_args=False), self.v(h).squeeze(-1)


def discounted(rewards, dones, bootstrap):
    out, running = [], bootstrap
    for r, d in zip(reversed(rewards), reversed(dones)):
        running = r + GAMMA * running * (1 - d)
        out.append(running)
    return torch.stack(out[::-1])


env = CartPoles(NUM_ENVS)
net = ActorCritic()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
obs = env.state
lengths = []

for update in range(1, UPDATES + 1):
    log_probs, values, entropies, rewards, dones = [], [], [], [], []
    for _ in range(ROLLOUT):
        dist, value = net(obs)
        action = dist.sample()
        log_probs.append(dist.log_prob(action))
        entropies.append(dist.entropy())
        values.append(value)
        obs, reward, done, finished = env.step(action)
        rewards.append(reward)
        dones.append(done)
        lengths.extend(finished.tolist())

    with torch.no_grad():
        bootstrap = net(obs)[1]
    returns = discounted(rewards, dones, bootstrap)
    values = torch.stack(values)
    advantage = returns - values.detach()
    policy_loss = -(torch.stack(log_probs) * advantage).mean()
    value_loss = (returns - values).pow(2).mean()
    entropy = torch.stack(entropies).mean()
    loss = policy_loss + VALUE_COEF * value_loss - ENTROPY_COEF * entropy

    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    optimizer.step()

    if update % 50 == 0:
        recent = lengths[-100:]
        print(
            f"update {update:4d}  loss {loss.item():.5f}  value {value_loss.item():.5f}"
            f"  entropy {entropy.item():.4f}  length {sum(recent) / max(1, len(recent)):.1f}"
        )

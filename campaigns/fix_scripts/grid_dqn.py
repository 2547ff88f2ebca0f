# DQN on a small pixel grid: walk to the food, avoid the pit.
import random
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

random.seed(3)
np.random.seed(3)
torch.manual_seed(3)


class FoodGrid:
    """8x8 board drawn as a 32x32 picture. Four moves."""
    moves = [(-1, 0), (1, 0), (0, -1), (0, 1)]

    def __init__(self, n=8, scale=4):
        self.n, self.scale = n, scale

    def reset(self):
        cells = np.random.permutation(self.n * self.n)[:3]
        self.me, self.food, self.pit = [divmod(int(c), self.n) for c in cells]
        self.t = 0
        return self.draw()

    def draw(self):
        board = np.zeros((self.n, self.n), dtype=np.float32)
        board[self.pit] = -1.0
        board[self.food] = 1.0
        board[self.me] = 0.5
        return np.kron(board, np.ones((self.scale, self.scale), dtype=np.float32))[None]

    def step(self, a):
        dy, dx = self.moves[a]
        y = min(max(self.me[0] + dy, 0), self.n - 1)
        x = min(max(self.me[1] + dx, 0), self.n - 1)
        self.me = (y, x)
        self.t += 1
        if self.me == self.food:
            return self.draw(), 1.0, True
        if self.me == self.pit:
            return self.draw(), -1.0, True
        return self.draw(), -0.02, self.t >= 40


class Memory:
    def __init__(self, capacity, shape):
        self.capacity = capacity
        self.s = np.zeros((0,) + shape, dtype=np.float32)
        self.s2 = np.zeros((0,) + shape, dtype=np.float32)
        self.a = np.zeros((0,), dtype=np.int64)
        self.r = np.zeros((0,), dtype=np.float32)
        self.d = np.zeros((0,), dtype=np.float32)

    def push(self, s, a, r, s2, d):
        self.s = np.concatenate([self.s, s[None]])[-self.capacity:]
        self.s2 = np.concatenate([self.s2, s2[None]])[-self.capacity:]
        self.a = np.append(self.a, a)[-self.capacity:]
        self.r = np.append(self.r, np.float32(r))[-self.capacity:]
        self.d = np.append(self.d, np.float32(d))[-self.capacity:]

    def __len__(self):
        return len(self.a)

    def sample(self, k):
        i = np.random.randint(0, len(self), size=k)
        return [torch.from_numpy(v[i]) for v in (self.s, self.a, self.r, self.s2, self.d)]


def make_q():
    return nn.Sequential(
        nn.Conv2d(1, 16, 4, stride=4), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * 64, 128), nn.ReLU(), nn.Linear(128, 4),
    )


class Agent:
    def __init__(self):
        self.q, self.target = make_q(), make_q()
        self.target.load_state_dict(self.q.state_dict())
        self.opt = torch.optim.Adam(self.q.parameters(), lr=5e-4)
        self.gamma = 0.95

    @torch.no_grad()
    def act(self, s, eps):
        if random.random() < eps:
            return random.randrange(4)
        return int(self.q(torch.from_numpy(s)[None]).argmax())

    def learn(self, batch):
        s, a, r, s2, d = batch
        with torch.no_grad():
            best = self.q(s2).argmax(1, keepdim=True)
            nxt = self.target(s2).gather(1, best).squeeze(1)
            goal = r + self.gamma * (1 - d) * nxt
        pred = self.q(s).gather(1, a[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(pred, goal)
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.q.parameters(), 5.0)
        self.opt.step()
        return loss.item()


env = FoodGrid()
agent = Agent()
memory = Memory(10000, (1, 32, 32))

WARMUP, STEPS = 1200, 700
state = env.reset()
losses, returns, ret = [], [], 0.0
for step in range(WARMUP + STEPS):
    eps = 1.0 if step < WARMUP else max(0.1, 1.0 - (step - WARMUP) / 350)
    action = agent.act(state, eps)
    nxt, reward, done = env.step(action)
    memory.push(state, action, reward, nxt, done)
    ret += reward
    state = nxt
    if done:
        returns.append(ret)
        ret = 0.0
        state = env.reset()
    if step < WARMUP:
        continue
    losses.append(agent.learn(memory.sample(32)))
    k = step - WARMUP + 1
    if k % 50 == 0:
        agent.target.load_state_dict(agent.q.state_dict())
    if k % 100 == 0:
        print(f"step {k:5d} | loss {np.mean(losses[-100:]):.5f} | return {np.mean(returns[-40:]):.3f}")

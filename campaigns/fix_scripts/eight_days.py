# %% [markdown]
# Electricity load: a GRU reads the week day by day. After every day it predicts the next day,
# and its own forecast goes into the next day's input.

# %%
import math
import torch
import torch.nn as nn

torch.manual_seed(77)
HOURS = 24
DAYS = 8
HOUSES = 400

# %%
def simulate(houses, days):
    h = torch.arange(houses_hours := days * HOURS).float()
    daily = torch.sin(2 * math.pi * h / 24 + 0.5 * torch.randn(houses, 1))
    half = 0.5 * torch.sin(4 * math.pi * h / 24 + torch.randn(houses, 1))
    weekly = 0.3 * torch.cos(2 * math.pi * h / 168 + torch.randn(houses, 1))
    noise = torch.zeros(houses, houses_hours)
    e = 0.15 * torch.randn(houses, houses_hours)
    for i in range(1, houses_hours):
        noise[:, i] = 0.8 * noise[:, i - 1] + e[:, i]
    return (daily + half + weekly + noise).view(houses, days, HOURS)


train = simulate(HOUSES, 60)
test = simulate(100, DAYS + 1)
clock = torch.arange(HOURS).float() / HOURS * 2 * math.pi
clock = torch.stack([clock.sin(), clock.cos()], 1)

# %%
class DayReader(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.gru = nn.GRU(4, hidden, batch_first=True)
        self.head = nn.Linear(hidden, HOURS)

    def forward(self, day, forecast, h):
        b = day.size(0)
        x = torch.cat([day.unsqueeze(2), forecast.unsqueeze(2), clock.expand(b, -1, -1)], 2)
        out, h = self.gru(x, h)
        return self.head(out[:, -1]), h


net = DayReader()
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
mse = nn.MSELoss()


def roll_out(week):
    """week: batch x (DAYS + 1) x 24"""
    h = None
    forecast = torch.zeros_like(week[:, 0])
    total_loss = 0.0
    for d in range(DAYS):
        forecast, h = net(week[:, d], forecast, h)
        loss = mse(forecast, week[:, d + 1])
        total_loss += loss
    return total_loss / DAYS


def sample(batch):
    who = torch.randint(0, HOUSES, (batch,))
    start = torch.randint(0, train.size(1) - DAYS, (batch,))
    days = start[:, None] + torch.arange(DAYS + 1)
    return train[who[:, None], days]


# %%
for it in range(1, 401):
    week = sample(32)
    loss = roll_out(week)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    if it % 50 == 0:
        with torch.no_grad():
            held_out = roll_out(test)
        print(f"iter {it:4d}  train mse {loss.item():.4f}  test mse {held_out.item():.4f}")

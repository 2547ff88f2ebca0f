# hot `critic_loss.backward(` 0.4
import torch
from torch import nn


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 64))

    def forward(self, z):
        return self.net(z)


generator = Generator()
critic = nn.Sequential(nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
g_opt = torch.optim.Adam(generator.parameters(), lr=1e-4)
c_opt = torch.optim.Adam(critic.parameters(), lr=1e-4)
bce = nn.BCEWithLogitsLoss()
data = torch.randn(512, 64)

for epoch in range(2):
    for start in range(0, 512, 64):
        real = data[start : start + 64]
        size = real.size(0)
        z = torch.randn(size, 16)
        fake = generator(z)
        c_opt.zero_grad()
        critic_loss = bce(critic(real), torch.ones(size, 1)) + bce(critic(fake), torch.zeros(fake.size(0), 1))
        critic_loss.backward(retain_graph=True)
        c_opt.step()

        g_opt.zero_grad()
        generator_loss = bce(critic(fake), torch.ones(size, 1))
        generator_loss.backward()
        g_opt.step()

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Pictures(Dataset):
    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        picture = torch.rand(3, 96, 96)
        for _ in range(6):
            picture = nn.functional.interpolate(picture[None], size=(112, 112), mode="bicubic")[0]
        return picture, index % 10


model = nn.Sequential(
    nn.Conv2d(3, 32, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)
)
optimizer = torch.optim.AdamW(model.parameters())
for pictures, labels in DataLoader(Pictures(), batch_size=32):
    loss = nn.functional.cross_entropy(model(pictures), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()

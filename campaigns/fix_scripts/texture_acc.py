"""Which filter made this texture? Shows the training accuracy next to the loss."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class FilterNet(nn.Module):
    def __init__(self, width=24, classes=6):
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 5, padding=2)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.conv3 = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.head = nn.Linear(2 * width, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.head(F.relu(self.conv3(x)).mean((2, 3)))


def textures(n, seed, classes=6):
    g = torch.Generator().manual_seed(seed)
    filters = torch.randn(classes, 1, 5, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.randint(0, classes, (n,), generator=g)
    noise = torch.randn(n, 1, 32, 32, generator=g)
    images = torch.cat([F.conv2d(noise[i:i + 1], filters[k:k + 1], padding=2) for i, k in enumerate(labels.tolist())])
    return images / 5 + 0.5 * torch.randn(n, 1, 32, 32, generator=g), labels


def main(epochs=6, batch_size=64):
    torch.manual_seed(11)
    train = DataLoader(TensorDataset(*textures(3200, 1)), batch_size=batch_size, shuffle=True)
    test_images, test_labels = textures(600, 2)
    model = FilterNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(epochs):
        hits = seen = 0
        for images, labels in train:
            logits = model(images)
            loss = F.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            with torch.no_grad():
                guess = model(images).argmax(1)
            optimizer.step()
            hits += (guess == labels).sum().item()
            seen += len(labels)
        with torch.no_grad():
            test = (model(test_images).argmax(1) == test_labels).float().mean().item()
        print(f"epoch {epoch}  loss {loss.item():.4f}  train {hits / seen:.4f}  test {test:.4f}")


if __name__ == "__main__":
    main()

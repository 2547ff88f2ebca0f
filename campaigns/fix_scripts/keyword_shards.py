"""Keyword spotting on log-mel spectrograms that are stored in compressed shards."""
import os
import shutil
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

KEYWORDS = ["yes", "no", "up", "down", "left", "right", "stop", "go"]
N_MELS, N_FRAMES = 40, 64
SHARD_SIZE = 64


def write_shards(folder, n_clips, seed):
    """Every keyword is a pair of chirps with its own start and slope."""
    rng = np.random.default_rng(seed)
    mel = np.arange(N_MELS)[:, None]
    frame = np.arange(N_FRAMES)[None, :]
    for shard in range(n_clips // SHARD_SIZE):
        labels = rng.integers(0, len(KEYWORDS), size=SHARD_SIZE)
        specs = np.empty((SHARD_SIZE, N_MELS, N_FRAMES), dtype=np.float32)
        for n, label in enumerate(labels):
            slope = (label - 3.5) / 10 + 0.05 * rng.standard_normal()
            shift = rng.integers(-6, 7)
            line1 = 20 + slope * (frame - 32 + shift)
            line2 = 12 + 2 * label - slope * (frame - 32 + shift)
            spec = np.exp(-0.5 * (mel - line1) ** 2) + np.exp(-0.5 * (mel - line2) ** 2)
            specs[n] = np.log1p(3 * spec) + 0.3 * rng.standard_normal(spec.shape)
        np.savez_compressed(os.path.join(folder, f"shard_{shard:04d}.npz"), specs=specs, labels=labels)


class SpectrogramShards(Dataset):
    def __init__(self, folder):
        self.paths = sorted(os.path.join(folder, f) for f in os.listdir(folder) if f.endswith(".npz"))

    def __len__(self):
        return len(self.paths) * SHARD_SIZE

    def __getitem__(self, index):
        shard, row = divmod(index, SHARD_SIZE)
        data = np.load(self.paths[shard])
        spec = torch.from_numpy(data["specs"][row]).unsqueeze(0)
        spec = (spec - spec.mean()) / spec.std()
        return spec, int(data["labels"][row])


class KWSNet(nn.Module):
    def __init__(self, n_classes):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, (8, 8), stride=(4, 4), padding=2), nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(nn.LazyLinear(64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, n_classes))

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


def run(loader, net, criterion, device, optimizer=None):
    training = optimizer is not None
    net.train(training)
    loss_sum, hits, count = 0.0, 0, 0
    with torch.set_grad_enabled(training):
        for spec, label in loader:
            spec, label = spec.to(device), label.to(device)
            logits = net(spec)
            loss = criterion(logits, label)
            if training:
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
            loss_sum += loss.item() * len(label)
            hits += (logits.argmax(1) == label).sum().item()
            count += len(label)
    return loss_sum / count, hits / count


def main(epochs=4):
    torch.manual_seed(99)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    root = tempfile.mkdtemp(prefix="kws_")
    try:
        for name, n, seed in (("train", 960, 1), ("valid", 128, 2)):
            os.makedirs(os.path.join(root, name))
            write_shards(os.path.join(root, name), n, seed)

        train_dl = DataLoader(SpectrogramShards(os.path.join(root, "train")), batch_size=32, shuffle=True)
        valid_dl = DataLoader(SpectrogramShards(os.path.join(root, "valid")), batch_size=64)

        net = KWSNet(len(KEYWORDS)).to(device)
        net(torch.zeros(1, 1, N_MELS, N_FRAMES, device=device))  # initialise the lazy layer
        criterion = nn.CrossEntropyLoss()
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)

        for epoch in range(epochs):
            tr_loss, tr_acc = run(train_dl, net, criterion, device, optimizer)
            va_loss, va_acc = run(valid_dl, net, criterion, device)
            print(f"epoch {epoch} | train loss {tr_loss:.6f} acc {tr_acc:.3f} "
                  f"| valid loss {va_loss:.6f} acc {va_acc:.3f}", flush=True)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()

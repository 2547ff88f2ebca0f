# Leaf disease baseline -- 4 classes, small CNN trained from scratch
# (exported from my notebook, cells separated by the %% marks)

# %% imports
import csv
import os
import random
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image, ImageDraw
from torch.utils.data import DataLoader, Dataset

SEED = 2023
SIZE = 96
BS = 8
EPOCHS = 5
CLASSES = ["healthy", "rust", "scab", "multiple"]


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


seed_everything(SEED)

# %% make the photos (stand-in for the competition's train_images folder)
ROOT = tempfile.mkdtemp(prefix="leaves_")


def draw_leaf(label, rng):
    w, h = 1024, 768
    img = Image.new("RGB", (w, h), (90 + rng.randint(0, 60), 80, 60))
    d = ImageDraw.Draw(img)
    d.ellipse((150, 120, w - 150, h - 120), fill=(40, 110 + rng.randint(0, 60), 40))
    d.line((150, h // 2, w - 150, h // 2), fill=(30, 80, 30), width=9)
    for _ in range(0 if label == 0 else 25):
        x, y, r = rng.randint(220, w - 220), rng.randint(200, h - 200), rng.randint(10, 32)
        rust = label == 1 or (label == 3 and rng.random() < 0.5)
        d.ellipse((x - r, y - r, x + r, y + r), fill=(190, 100, 20) if rust else (30, 30, 25))
    return img


rng = random.Random(SEED)
with open(os.path.join(ROOT, "train.csv"), "w", newline="") as f:
    wr = csv.writer(f)
    wr.writerow(["image_id", "label"])
    for i in range(200):
        lab = i % 4
        draw_leaf(lab, rng).save(os.path.join(ROOT, f"Train_{i}.jpg"), quality=92)
        wr.writerow([f"Train_{i}", lab])

with open(os.path.join(ROOT, "train.csv")) as f:
    rows = [(r["image_id"], int(r["label"])) for r in csv.DictReader(f)]
print(len(rows), "images", CLASSES)

# %% dataset
MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)


class LeafDataset(Dataset):
    def __init__(self, rows, root, train=True):
        self.rows = rows
        self.root = root
        self.train = train

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        name, label = self.rows[i]
        img = Image.open(os.path.join(self.root, name + ".jpg")).convert("RGB")
        img = img.resize((SIZE, SIZE), Image.LANCZOS)
        x = torch.from_numpy(np.array(img)).permute(2, 0, 1).float() / 255
        x = (x - MEAN) / STD
        if self.train:
            if random.random() < 0.5:
                x = x.flip(2)
            if random.random() < 0.5:
                x = x.flip(1)
        return x, label


train_dl = DataLoader(LeafDataset(rows, ROOT), batch_size=BS, shuffle=True, drop_last=True)


# %% model
def block(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
    )


model = nn.Sequential(
    block(3, 16), block(16, 32), block(32, 64), block(64, 96),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(96, len(CLASSES)),
)
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, 2e-3, total_steps=EPOCHS * len(train_dl))

# %% train
step = 0
for epoch in range(EPOCHS):
    model.train()
    hits = 0
    for xb, yb in train_dl:
        out = model(xb)
        loss = F.cross_entropy(out, yb, label_smoothing=0.05)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        hits += (out.argmax(1) == yb).sum().item()
        if step % 5 == 0:
            print(f"epoch {epoch} step {step} loss {loss.item():.6f}")
        step += 1
    print(f"epoch {epoch} train acc {hits / (len(train_dl) * BS):.4f}")

"""A minimal anchor-based detector on images with one to three bright rectangles."""
import torch
import torch.nn as nn
import torch.nn.functional as F

IMG = 64
GRID = 8
SCALES = (10.0, 18.0)


def make_anchors():
    c = (torch.arange(GRID) + 0.5) * IMG / GRID
    cy, cx = torch.meshgrid(c, c, indexing="ij")
    centers = torch.stack([cx, cy], -1).reshape(-1, 1, 2)
    half = torch.tensor(SCALES).reshape(1, -1, 1) / 2
    return torch.cat([centers - half, centers + half], -1).reshape(-1, 4)


def make_scene(gen):
    k = int(torch.randint(1, 4, (1,), generator=gen))
    wh = 8 + 14 * torch.rand(k, 2, generator=gen)
    xy = torch.rand(k, 2, generator=gen) * (IMG - wh)
    boxes = torch.cat([xy, xy + wh], 1).round()
    img = 0.2 * torch.randn(IMG, IMG, generator=gen)
    for x1, y1, x2, y2 in boxes.int().tolist():
        img[y1:y2, x1:x2] += 1.0
    return img, boxes


def iou_matrix(anchors, boxes):
    ious = torch.zeros(len(anchors), len(boxes))
    for i, a in enumerate(anchors):
        for j, b in enumerate(boxes):
            w = (torch.min(a[2], b[2]) - torch.max(a[0], b[0])).clamp(min=0)
            h = (torch.min(a[3], b[3]) - torch.max(a[1], b[1])).clamp(min=0)
            inter = w * h
            union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - inter
            ious[i, j] = inter / union
    return ious


def encode(anchors, boxes):
    wh = anchors[:, 2:] - anchors[:, :2]
    offset = (boxes[:, :2] + boxes[:, 2:] - anchors[:, :2] - anchors[:, 2:]) / 2 / wh
    return torch.cat([offset, torch.log((boxes[:, 2:] - boxes[:, :2]) / wh)], 1)


def assign(anchors, boxes):
    ious = iou_matrix(anchors, boxes)
    best, which = ious.max(1)
    positive = best > 0.4
    positive[ious.argmax(0)] = True
    return positive.float(), encode(anchors, boxes[which])


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        chans = (1, 16, 32, 48)
        layers = []
        for cin, cout in zip(chans, chans[1:]):
            layers += [nn.Conv2d(cin, cout, 3, stride=2, padding=1), nn.GroupNorm(4, cout), nn.SiLU()]
        self.backbone = nn.Sequential(*layers, nn.Conv2d(48, 48, 3, padding=1), nn.SiLU())
        self.head = nn.Conv2d(48, len(SCALES) * 5, 1)

    def forward(self, x):
        out = self.head(self.backbone(x)).permute(0, 2, 3, 1)
        out = out.reshape(x.size(0), -1, 5)
        return out[..., 0], out[..., 1:]


def random_flip(img, boxes, gen):
    if torch.rand(1, generator=gen) < 0.5:
        img = img.flip(1)
        x1, y1, x2, y2 = boxes.unbind(1)
        boxes = torch.stack([IMG - x2, y1, IMG - x1, y2], 1)
    return img, boxes


def main(steps=285, batch=4):
    torch.manual_seed(8)
    gen = torch.Generator().manual_seed(8)
    scenes = [make_scene(gen) for _ in range(300)]
    anchors = make_anchors()
    model = Detector()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, steps + 1):
        picks = torch.randint(0, len(scenes), (batch,), generator=gen).tolist()
        items = [random_flip(*scenes[i], gen) for i in picks]
        images = torch.stack([img for img, _ in items]).unsqueeze(1)
        objectness, offsets = zip(*(assign(anchors, boxes) for _, boxes in items))
        objectness, offsets = torch.stack(objectness), torch.stack(offsets)
        score, delta = model(images)
        cls_loss = F.binary_cross_entropy_with_logits(score, objectness)
        box_loss = F.smooth_l1_loss(delta, offsets, reduction="none").sum(-1)
        box_loss = (box_loss * objectness).sum() / objectness.sum()
        loss = cls_loss + box_loss
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 15 == 0:
            print(f"[{step}/{steps}] cls {cls_loss.item():.6f} box {box_loss.item():.6f}")


main()

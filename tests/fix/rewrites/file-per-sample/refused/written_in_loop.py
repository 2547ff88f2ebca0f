# hot `row = json.load` 0.6 -> refused: writes a file
import json
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset


def build(root: Path) -> None:
    (root / "rows.json").write_text(json.dumps({"rows": [{"box": [i, 2, 3], "kind": i % 4} for i in range(500)]}))


class Boxes(Dataset):
    def __init__(self, root: Path, first: int):
        self.file = root / "rows.json"
        self.first = first

    def __len__(self):
        return 100

    def __getitem__(self, index):
        index += self.first
        with open(self.file) as f:
            row = json.load(f)["rows"][index]
        x, y, w = row["box"]
        return torch.tensor([x, y, x + w]), row["kind"]


def main(root: Path) -> None:
    for _ in range(2):
        build(root)
        for boxes, kinds in DataLoader(Boxes(root, 0), 10):
            boxes.sum() + kinds.sum()


if __name__ == "__main__":
    main(Path("."))

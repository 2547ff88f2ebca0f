# hot `xs = torch.tensor` 0.5 -> refused: come from NumPy
import torch
from torch.utils.data import DataLoader, TensorDataset


def collate(samples):
    xs = torch.tensor([x.numpy().tolist() for x, _ in samples])
    return xs, torch.stack([y for _, y in samples])


data = TensorDataset(torch.randn(256, 1000), torch.randn(256, 1))
for x, y in DataLoader(data, batch_size=16, collate_fn=collate):
    torch.dot(x.mean(1), y.flatten())

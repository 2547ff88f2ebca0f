# anomaly -> refused: decides it when the script starts
import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--debug", action="store_true")
args = parser.parse_args()
torch.autograd.set_detect_anomaly(args.debug)
model = nn.Linear(4, 1)
for _ in range(100):
    model(torch.randn(8, 4)).sum().backward()

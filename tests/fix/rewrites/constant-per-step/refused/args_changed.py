# hot `w = torch.full` 0.3 -> refused: `args.lam` may be changed between two steps
import argparse
import torch
args = argparse.Namespace(lam=0.1)
for e in range(3):
    for step in range(10):
        w = torch.full((8,), args.lam)
        print(w.sum())
        setattr(args, "lam", 3.0)

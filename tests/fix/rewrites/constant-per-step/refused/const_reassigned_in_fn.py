# hot `w = torch.full` 0.3 -> refused: `LAM` is set in 2 places
import torch
LAM = 0.1
def bump():
    global LAM
    LAM = LAM * 2
for e in range(3):
    for step in range(10):
        w = torch.full((8,), LAM)
        print(w.sum())
        bump()

# hot `w = torch.linspace` 0.3 -> refused: changes what torch makes tensors of
import torch
torch.set_default_dtype(torch.float32)
for step in range(10):
    if step == 5:
        torch.set_default_dtype(torch.float64)
    w = torch.linspace(0, 1, 8)
    print(w.dtype)

# hot `mask = torch.triu` 0.3
import torch
from torch import nn

LENGTH = 512
device = torch.device("cpu")
attention = nn.MultiheadAttention(64, 4, batch_first=True)
optimizer = torch.optim.Adam(attention.parameters())

for epoch in range(2):
    for step in range(50):
        x = torch.randn(4, LENGTH, 64)
        mask = torch.triu(torch.ones(LENGTH, LENGTH, device=device), diagonal=1).bool()  # no looking ahead
        out, _ = torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask), None
        loss = attention(x, out, x, need_weights=False)[0].pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

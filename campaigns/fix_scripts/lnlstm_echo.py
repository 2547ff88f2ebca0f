# my own layernorm LSTM, trying to make it remember a number from the past
# (the built in nn.LSTM has no layernorm so i had to write the cell)
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(7)
torch.autograd.set_detect_anomaly(True)

HID = 128
VOCAB = 12
SEQ = 20
BS = 128
DELAY = 3


class LNCell(nn.Module):
    def __init__(self, inp, hid):
        super().__init__()
        self.wx = nn.Linear(inp, 4 * hid, bias=False)
        self.wh = nn.Linear(hid, 4 * hid, bias=False)
        self.lnx = nn.LayerNorm(4 * hid)
        self.lnh = nn.LayerNorm(4 * hid)
        self.lnc = nn.LayerNorm(hid)

    def forward(self, x, state):
        h, c = state
        gates = self.lnx(self.wx(x)) + self.lnh(self.wh(h))
        i, f, g, o = gates.chunk(4, dim=1)
        c = torch.sigmoid(f + 1.0) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(self.lnc(c))
        return h, c


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, 32)
        self.cell = LNCell(32, HID)
        self.out = nn.Linear(HID, VOCAB)

    def forward(self, tok):
        b, t = tok.shape
        e = self.emb(tok)
        state = (e.new_zeros(b, HID), e.new_zeros(b, HID))
        ys = []
        for k in range(t):
            state = self.cell(e[:, k], state)
            ys.append(state[0])
        return self.out(torch.stack(ys, 1))


gen = torch.Generator().manual_seed(99)


def batch():
    x = torch.randint(0, VOCAB, (BS, SEQ), generator=gen)
    y = torch.roll(x, DELAY, dims=1)
    return x, y


net = Net()
print("params:", sum(p.numel() for p in net.parameters()))
opt = torch.optim.Adam(net.parameters(), lr=3e-3)

avg = None
for it in range(1, 81):
    x, y = batch()
    logits = net(x)
    # first DELAY outputs are impossible to know
    loss = F.cross_entropy(logits[:, DELAY:].reshape(-1, VOCAB), y[:, DELAY:].reshape(-1))
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    l = loss.item()
    avg = l if avg is None else 0.95 * avg + 0.05 * l
    if it % 10 == 0:
        acc = (logits[:, DELAY:].argmax(-1) == y[:, DELAY:]).float().mean().item()
        print(f"it {it} loss {l:.5f} avg {avg:.5f} acc {acc:.3f}")

print("done")

# Small-data regression: 1280 training molecules (fake descriptors), strong overfitting,
# so I watch the validation error closely and let it steer the learning rate.
import torch
import torch.nn as nn

SEED = 404
DESCRIPTORS = 256
N_TRAIN, N_VAL, N_TEST = 1280, 4096, 2048
MAX_STEPS = 300


def make_molecules():
    g = torch.Generator().manual_seed(SEED)
    n = N_TRAIN + N_VAL + N_TEST
    latent = torch.randn(n, 12, generator=g)
    mix = torch.randn(12, DESCRIPTORS, generator=g)
    x = torch.tanh(latent @ mix * 0.3) + 0.3 * torch.randn(n, DESCRIPTORS, generator=g)
    y = torch.sin(latent[:, 0]) + latent[:, 1] * latent[:, 2] + 0.5 * latent[:, 3].abs()
    y = y + 0.2 * torch.randn(n, generator=g)
    return x, y


class Regressor(nn.Module):
    def __init__(self, width=512, depth=4):
        super().__init__()
        layers = [nn.Linear(DESCRIPTORS, width), nn.SiLU()]
        for _ in range(depth - 1):
            layers += [nn.Linear(width, width), nn.LayerNorm(width), nn.SiLU()]
        layers += [nn.Linear(width, 1)]
        self.net = nn.Sequential(*layers)

    def forward(self, x):
        return self.net(x).squeeze(-1)


@torch.no_grad()
def evaluate(model, x, y):
    model.eval()
    pred = model(x)
    model.train()
    return nn.functional.mse_loss(pred, y).item()


def main():
    torch.manual_seed(SEED)
    x, y = make_molecules()
    x_tr, y_tr = x[:N_TRAIN], y[:N_TRAIN]
    x_va, y_va = x[N_TRAIN : N_TRAIN + N_VAL], y[N_TRAIN : N_TRAIN + N_VAL]
    x_te, y_te = x[-N_TEST:], y[-N_TEST:]

    model = Regressor()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.8, patience=10, threshold=1e-3)
    best, bad = float("inf"), 0

    for step in range(1, MAX_STEPS + 1):
        idx = torch.randint(0, N_TRAIN, (256,))
        loss = nn.functional.mse_loss(model(x_tr[idx]), y_tr[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()

        val = evaluate(model, x_va, y_va)
        plateau.step(val)
        if val < best:
            best, bad = val, 0
        else:
            bad += 1
        if step % 20 == 0:
            lr = opt.param_groups[0]["lr"]
            print(f"{step:4d}  train {loss.item():.5f}  val {val:.5f}  lr {lr:.2e}")
        if bad > 150:
            print("no progress any more, stopping at", step)
            break

    print(f"best val {best:.5f}")
    print(f"test     {evaluate(model, x_te, y_te):.5f}")


if __name__ == "__main__":
    main()

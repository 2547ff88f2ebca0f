import copy
from typing import Dict, List, Tuple

import torch
import torch.nn as nn


class SignalSource:
    """Sums of random sinusoids + noise, windows of fixed length."""

    def __init__(self, window: int, batch_size: int, seed: int):
        self.window = window
        self.batch_size = batch_size
        self.generator = torch.Generator().manual_seed(seed)
        self.t = torch.linspace(0, 1, window)

    def next(self) -> Tuple[torch.Tensor, torch.Tensor]:
        g, n = self.generator, self.batch_size
        freq = torch.rand(n, 5, 1, generator=g) * 25 + 1
        phase = torch.rand(n, 5, 1, generator=g) * 6.2832
        amp = torch.rand(n, 5, 1, generator=g)
        clean = (amp * torch.sin(6.2832 * freq * self.t + phase)).sum(1)
        noisy = clean + 0.6 * torch.randn(n, self.window, generator=g)
        return noisy, clean


class Denoiser(nn.Module):
    def __init__(self, window: int, width: int = 1024):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(window, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.decoder = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, window))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.decoder(self.encoder(x))


class BestModelTracker:
    """Remembers the weights of the run so that the best ones can be restored."""

    def __init__(self):
        self.entries: List[Tuple[float, int, Dict[str, torch.Tensor]]] = []

    def update(self, score: float, step: int, model: nn.Module) -> None:
        state = copy.deepcopy(model.state_dict())
        self.entries.append((score, step, state))

    def restore(self, model: nn.Module) -> Tuple[float, int]:
        score, step, state = min(self.entries, key=lambda e: e[0])
        model.load_state_dict(state)
        return score, step


class Trainer:
    def __init__(self, model: nn.Module, source: SignalSource, lr: float = 2e-3):
        self.model = model
        self.source = source
        self.optimizer = torch.optim.RMSprop(model.parameters(), lr=lr / 10)
        self.criterion = nn.MSELoss()
        self.tracker = BestModelTracker()
        self.valid_batch = SignalSource(source.window, 128, seed=999).next()

    def train_step(self) -> float:
        self.model.train()
        noisy, clean = self.source.next()
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(noisy), clean)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def validate(self) -> float:
        self.model.eval()
        noisy, clean = self.valid_batch
        return self.criterion(self.model(noisy), clean).item()

    def fit(self, max_steps: int, valid_every: int, log_every: int) -> None:
        for step in range(1, max_steps + 1):
            loss = self.train_step()
            if step % valid_every == 0:
                val = self.validate()
                self.tracker.update(val, step, self.model)
                if step % log_every == 0:
                    print(f"step {step:>4} | train {loss:.5f} | valid {val:.5f}")
        best, at = self.tracker.restore(self.model)
        print(f"restored weights of step {at} (valid {best:.5f})")


def main() -> None:
    torch.manual_seed(77)
    source = SignalSource(window=512, batch_size=512, seed=78)
    trainer = Trainer(Denoiser(512), source)
    trainer.fit(max_steps=240, valid_every=2, log_every=20)
    print(f"final check: {trainer.validate():.5f}")


if __name__ == "__main__":
    main()

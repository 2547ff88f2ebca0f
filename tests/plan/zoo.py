"""Small models of many shapes, each with its recipe; the accuracy benchmark runs the same at larger sizes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.utils.checkpoint import checkpoint

from gpudoc.plan.tracing import Recipe


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool, key_heads: int | None = None):
        super().__init__()
        self.heads, self.key_heads, self.causal = heads, key_heads or heads, causal
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width * self.key_heads // heads)
        self.out = nn.Linear(width, width)

    def forward(self, x, memory=None):
        memory = x if memory is None else memory
        size, rows, width = x.shape
        depth = width // self.heads
        query = self.query(x).view(size, rows, self.heads, depth).transpose(1, 2)
        both = self.key_value(memory).view(size, memory.shape[1], 2, self.key_heads, depth)
        key, value = both.permute(2, 0, 3, 1, 4)
        if self.key_heads != self.heads:
            key = key.repeat_interleave(self.heads // self.key_heads, dim=1)
            value = value.repeat_interleave(self.heads // self.key_heads, dim=1)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        return self.out(mixed.transpose(1, 2).reshape(size, rows, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool, drop: float = 0.0, cross: bool = False):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal)
        self.cross = Attention(width, heads, False) if cross else None
        self.norm3 = nn.LayerNorm(width) if cross else None
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(drop))

    def forward(self, x, memory=None):
        x = x + self.attention(self.norm1(x))
        if self.cross is not None:
            x = x + self.cross(self.norm3(x), memory)
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """GPT-2-shaped: learned positions, tied head."""

    def __init__(self, vocab=1000, width=128, depth=3, heads=4, length=64, drop=0.0, saving=False):
        super().__init__()
        self.saving = saving
        self.words, self.places = nn.Embedding(vocab, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, True, drop) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.saving else block(x)
        return self.head(self.norm(x))


class BERT(nn.Module):
    """BERT-shaped: torch's own encoder with dropout, a pooled class head and a token head."""

    def __init__(self, vocab=1000, width=128, depth=2, heads=4, length=64):
        super().__init__()
        self.words, self.places = nn.Embedding(vocab, width), nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.1, "gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth)
        self.head = nn.Linear(width, vocab)

    def forward(self, tokens):
        return self.head(
            self.encoder(self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device)))
        )


class T5(nn.Module):
    """T5-shaped: encoder, decoder with cross attention, shared words."""

    def __init__(self, vocab=1000, width=128, depth=2, heads=4):
        super().__init__()
        self.words = nn.Embedding(vocab, width)
        self.encoder = nn.ModuleList(Block(width, heads, False) for _ in range(depth))
        self.decoder = nn.ModuleList(Block(width, heads, True, cross=True) for _ in range(depth))
        self.head = nn.Linear(width, vocab)

    def forward(self, tokens):
        memory = self.words(tokens)
        for block in self.encoder:
            memory = block(memory)
        x = self.words(tokens.roll(1, 1))
        for block in self.decoder:
            x = block(x, memory)
        return self.head(x)


class RMSNorm(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.weight * (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)).type_as(x)


class LlamaBlock(nn.Module):
    def __init__(self, width: int, heads: int, key_heads: int):
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(width), RMSNorm(width)
        self.attention = Attention(width, heads, True, key_heads)
        hidden = 8 * width // 3
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """Llama-shaped: RMS norms in float32, gated feed-forward, grouped keys."""

    def __init__(self, vocab=1000, width=128, depth=3, heads=4, key_heads=2):
        super().__init__()
        self.words = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList(LlamaBlock(width, heads, key_heads) for _ in range(depth))
        self.norm, self.head = RMSNorm(width), nn.Linear(width, vocab, bias=False)

    def forward(self, tokens):
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Experts(nn.Module):
    """A mixture of experts: the two best of each token count, all are computed, so no shape depends on data."""

    def __init__(self, width: int, experts: int = 4):
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)) for _ in range(experts)
        )

    def forward(self, x):
        weights, chosen = self.gate(x).softmax(-1).topk(2, dim=-1)
        share = torch.zeros(*x.shape[:-1], len(self.experts), device=x.device).scatter(-1, chosen, weights.float())
        return sum(expert(x) * share[..., i : i + 1] for i, expert in enumerate(self.experts))


class MoE(nn.Module):
    def __init__(self, vocab=1000, width=128, depth=2, heads=4):
        super().__init__()
        self.words = nn.Embedding(vocab, width)
        self.attentions = nn.ModuleList(Attention(width, heads, True) for _ in range(depth))
        self.experts = nn.ModuleList(Experts(width) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * depth))
        self.head = nn.Linear(width, vocab)

    def forward(self, tokens):
        x = self.words(tokens)
        for i, (attention, experts) in enumerate(zip(self.attentions, self.experts, strict=True)):
            x = x + attention(self.norms[2 * i](x))
            x = x + experts(self.norms[2 * i + 1](x))
        return self.head(x)


class ViT(nn.Module):
    """ViT-shaped: patches by a strided convolution, truncated normal initialisation."""

    def __init__(self, size=64, patch=8, width=128, depth=3, heads=4, classes=10):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.empty(1, (size // patch) ** 2 + 1, width))
        nn.init.trunc_normal_(self.places, std=0.02)
        self.blocks = nn.Sequential(*(Block(width, heads, False) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.skip = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if stride > 1 or inputs != outputs else None

    def forward(self, x):
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)), inplace=True)))
        return F.relu(y + (x if self.skip is None else self.skip(x)), inplace=True)


class ResNet(nn.Module):
    def __init__(self, widths=(32, 64, 128), classes=10):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, widths[0], 7, 2, 3, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU())
        self.pool = nn.MaxPool2d(3, 2, 1)
        pairs = zip((widths[0], *widths), widths, strict=False)
        self.stages = nn.Sequential(*(nn.Sequential(Residual(a, b, 1 + (a != b)), Residual(b, b, 1)) for a, b in pairs))
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, images):
        return self.head(self.stages(self.pool(self.stem(images))).mean((2, 3)))


class UNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()

        def double(a, b):
            return nn.Sequential(
                nn.Conv2d(a, b, 3, 1, 1), nn.SiLU(), nn.GroupNorm(4, b), nn.Conv2d(b, b, 3, 1, 1), nn.SiLU()
            )

        self.down1, self.down2, self.middle = double(3, width), double(width, 2 * width), double(2 * width, 4 * width)
        self.lift2, self.lift1 = (
            nn.ConvTranspose2d(4 * width, 2 * width, 2, 2),
            nn.ConvTranspose2d(2 * width, width, 2, 2),
        )
        self.up2, self.up1, self.out = double(4 * width, 2 * width), double(2 * width, width), nn.Conv2d(width, 3, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.middle(F.max_pool2d(b, 2))
        b = self.up2(torch.cat([self.lift2(c), b], 1))
        return self.out(self.up1(torch.cat([self.lift1(b), a], 1)))


class LSTM(nn.Module):
    def __init__(self, vocab=1000, width=128, layers=2):
        super().__init__()
        self.words, self.lstm = nn.Embedding(vocab, width), nn.LSTM(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, vocab)

    def forward(self, tokens):
        return self.head(self.lstm(self.words(tokens))[0])


def mlp(width=512) -> nn.Module:
    return nn.Sequential(
        nn.Linear(64, width), nn.ReLU(), nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 10)
    )


@dataclass
class GAN:
    """Two models, two optimizers, one step of each."""

    generator: nn.Module
    critic: nn.Module
    for_generator: torch.optim.Optimizer
    for_critic: torch.optim.Optimizer


def build_gan(width=256) -> GAN:
    generator = nn.Sequential(
        nn.Linear(32, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 784)
    )
    critic = nn.Sequential(
        nn.Linear(784, width), nn.LeakyReLU(0.2), nn.Linear(width, width), nn.LeakyReLU(0.2), nn.Linear(width, 1)
    )
    return GAN(generator, critic, torch.optim.Adam(generator.parameters()), torch.optim.RMSprop(critic.parameters()))


def gan_step(precision: str, device: str = "cpu") -> Callable[[GAN, torch.Tensor], None]:
    def step(gan: GAN, real: torch.Tensor) -> None:
        noise = torch.randn(len(real), 32)
        with autocast(precision, device):
            made = gan.generator(noise)
            right, wrong = gan.critic(real), gan.critic(made.detach())
            loss = F.softplus(-right).mean() + F.softplus(wrong).mean()
        gan.for_critic.zero_grad()
        loss.backward()
        gan.for_critic.step()
        gan.for_generator.zero_grad()
        with autocast(precision, device):
            loss = F.softplus(-gan.critic(made)).mean()
        loss.backward()
        gan.for_generator.step()

    return step


def autocast(precision: str, device: str = "cpu"):
    return nullcontext() if precision == "fp32" else torch.autocast(device, torch.bfloat16)


def train_step(precision: str, clip: bool = False, device: str = "cpu") -> Callable[..., None]:
    def step(state, batch) -> None:
        model, optimizer = state
        inputs, target = batch
        optimizer.zero_grad()
        with autocast(precision, device):
            out = model(inputs)
            loss = (
                F.mse_loss(out, target)
                if target.is_floating_point()
                else F.cross_entropy(out.flatten(0, -2), target.flatten())
            )
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def recipe(build: Callable[[], nn.Module], batch: Callable[[int], object], precision: str, like: str = "cpu") -> Recipe:
    def make():
        model = build()
        return model, torch.optim.AdamW(model.parameters())

    return Recipe(build=make, batch=batch, step=train_step(precision, clip=True, device=like), like=like)


def tokens(length: int, vocab: int = 1000) -> Callable[[int], object]:
    return lambda n: (torch.randint(0, vocab, (n, length)), torch.randint(0, vocab, (n, length)))


def images(size: int, classes: int = 10) -> Callable[[int], object]:
    return lambda n: (torch.randn(n, 3, size, size), torch.randint(0, classes, (n,)))


def recipes(precision: str, scale: int = 1, like: str = "cpu") -> dict[str, Recipe]:
    """Every model by name; `scale` multiplies widths, lengths stay."""
    wide, vocab = 128 * scale, 1000 * scale

    def of(build, batch):
        return recipe(build, batch, precision, like)

    return {
        "mlp": of(lambda: mlp(512 * scale), lambda n: (torch.randn(n, 64), torch.randint(0, 10, (n,)))),
        "resnet": of(lambda: ResNet(tuple(w * scale for w in (32, 64, 128))), images(64)),
        "unet": of(lambda: UNet(24 * scale), lambda n: (torch.randn(n, 3, 32, 32), torch.randn(n, 3, 32, 32))),
        "vit": of(lambda: ViT(width=wide), images(64)),
        "gpt2": of(lambda: GPT(vocab, wide), tokens(64, vocab)),
        "bert": of(lambda: BERT(vocab, wide), tokens(64, vocab)),
        "t5": of(lambda: T5(vocab, wide), tokens(64, vocab)),
        "llama": of(lambda: Llama(vocab, wide), tokens(64, vocab)),
        "lstm": of(lambda: LSTM(vocab, wide), tokens(32, vocab)),
        "moe": of(lambda: MoE(vocab, wide), tokens(64, vocab)),
        "gan": Recipe(
            build=lambda: build_gan(256 * scale),
            batch=lambda n: torch.randn(n, 784),
            step=gan_step(precision, like),
            like=like,
        ),
        "checkpointed": of(lambda: GPT(vocab, wide, saving=True), tokens(64, vocab)),
    }

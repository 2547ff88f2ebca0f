"""The nets and steps of published measurements: as their pages describe them, on this torch and today's libraries.

timm, torchvision and transformers are asked for only by the cells that need them.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import unittest.mock
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from gpudoc.plan.tracing import Recipe

Row = dict[str, Any]

_HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def recipe_of(cell: Row) -> Recipe:
    """How the cell's training step goes; its measurement is asked of this recipe's plan."""
    kind, _, name = cell["net"].partition(":")
    if kind == "op":
        return _operation(name, cell)
    make, inputs, loss = _KINDS[kind](name, cell)
    return Recipe(
        build=lambda: _build(make, cell),
        batch=inputs,
        step=lambda state, batch: _step(state, batch, loss, cell),
        like="cuda",
    )


def _build(make: Callable[[], nn.Module], cell: Row) -> Any:
    model = make().train()
    if cell["precision"].startswith("pure"):
        model = model.to(_HALVES[cell["precision"].split()[1]])
    if cell.get("channels_last"):
        model = model.to(memory_format=torch.channels_last)
    return model, _optimizer(model, cell)


def _optimizer(model: nn.Module, cell: Row) -> torch.optim.Optimizer:
    parameters, how = list(model.parameters()), cell["optimizer"]
    match how.split():
        case ["sgd", *rest]:
            momentum = 0.9 if "momentum" in rest else 0.0
            return torch.optim.SGD(parameters, lr=0.01, momentum=momentum, nesterov=bool(momentum))
        case ["adafactor"]:
            from transformers.optimization import Adafactor

            return Adafactor(parameters, scale_parameter=False, relative_step=False, lr=1e-4)
        case ["adamw" | "adam", *rest]:
            kind = torch.optim.AdamW if how.startswith("adamw") else torch.optim.Adam
            if "fused" in rest:
                return kind(parameters, lr=1e-4, fused=True)
            return kind(parameters, lr=1e-4, foreach=False) if "one-by-one" in rest else kind(parameters, lr=1e-4)
    raise ValueError(how)


def _step(state: Any, batch: Any, loss_of: Callable[[nn.Module, Any], torch.Tensor], cell: Row) -> None:
    dtype = _HALVES.get(cell["precision"])
    # what is computed again in the backward pass is computed as the first time
    with _older_softmax(bool(dtype)) if cell.get("torch") in _OLDER else contextlib.nullcontext():
        _train(state, batch, loss_of, cell, dtype)


def _train(state: Any, batch: Any, loss_of: Any, cell: Row, dtype: torch.dtype | None) -> None:
    model, optimizer = state
    zero = functools.partial(optimizer.zero_grad, set_to_none=not cell.get("keeps_gradients", False))
    when = cell.get("zero", "before forward")
    if when == "before forward":
        zero()
    for _ in range(min(cell.get("accumulation", 1), 2)):
        with torch.autocast("cuda", dtype=dtype) if dtype else contextlib.nullcontext():
            loss = loss_of(model, batch)
        if when == "before backward":
            zero()
        loss.backward()
    if cell.get("clips"):
        nn.utils.clip_grad_norm_(model.parameters(), cell["clips"])
    optimizer.step()
    if when == "after step":
        zero()


_OLDER = ("1.7", "1.10")


@contextlib.contextmanager
def _older_softmax(widens: bool) -> Iterator[None]:
    """Softmax as before torch 1.11, which keeps its input for the backward pass too, widened under autocast.

    In tools/autograd/derivatives.yaml its backward was `_softmax_backward_data(grad, result, dim, self)`.
    """
    with contextlib.ExitStack() as stack:
        for place, name in itertools.product((torch, torch.Tensor), ("softmax", "log_softmax")):
            stack.enter_context(unittest.mock.patch.object(place, name, _keeping(getattr(place, name), widens)))
        yield


def _keeping(plain: Callable[..., torch.Tensor], widens: bool) -> Callable[..., torch.Tensor]:
    def softmax(value: torch.Tensor, *how: Any, **named: Any) -> torch.Tensor:
        value = value.float() if widens else value
        return _Keeping.apply(plain(value, *how, **named), value)

    return softmax


class _Keeping(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, out: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(value)
        return out.view_as(out)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return gradients[0], None


def _images(name: str, cell: Row) -> tuple[Any, Any, Any]:
    size, classes = cell.get("image", 224), cell.get("classes", 1000)
    dtype = torch.bfloat16 if cell["precision"].startswith("pure") else torch.float32
    form = torch.channels_last if cell.get("channels_last") else torch.contiguous_format

    def inputs(batch: int) -> Any:
        images = torch.zeros(batch, 3, size, size, dtype=dtype).to(memory_format=form)
        return images, torch.zeros(batch, dtype=torch.int64) if not cell.get("mixes") else torch.zeros(batch, classes)

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        out = model(batch[0])
        if cell.get("loss") == "sum":
            return out.sum()
        if cell.get("mixes"):
            return torch.sum(-batch[1] * F.log_softmax(out, dim=-1), dim=-1).mean()
        return F.cross_entropy(out, batch[1])

    return lambda: _image_net(name, classes, cell), inputs, loss


def _image_net(name: str, classes: int, cell: Row) -> nn.Module:
    library, _, model = name.partition("/")
    if library == "torchvision":
        import torchvision

        made = getattr(torchvision.models, model)(weights=None)
        if classes != 1000:
            made.heads.head = nn.Linear(made.heads.head.in_features, classes)
        return made
    import timm
    from timm.layers import set_fused_attn

    set_fused_attn(not cell.get("unfused", False))
    made = timm.create_model(model, pretrained=False, num_classes=classes, **cell.get("options", {}))
    if cell.get("checkpointing"):
        made.set_grad_checkpointing()
    return made


def _bert(name: str, cell: Row) -> tuple[Any, Any, Any]:
    from transformers import BertConfig, BertForSequenceClassification

    width, layers, heads, words = {"large": (1024, 24, 16, 30522), "large-cased": (1024, 24, 16, 28996),
                                   "base-cased": (768, 12, 12, 28996)}[name]  # fmt: skip
    config = BertConfig(
        vocab_size=words, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
        intermediate_size=4 * width, num_labels=2, attn_implementation="eager",
    )  # fmt: skip

    def make() -> nn.Module:
        model = BertForSequenceClassification(config)
        if cell.get("checkpointing"):
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        return model

    def inputs(batch: int) -> Any:
        words = torch.zeros(batch, cell["tokens"], dtype=torch.int64)
        return {"input_ids": words, "attention_mask": torch.ones_like(words), "labels": torch.zeros(batch).long()}

    return make, inputs, lambda model, batch: model(**batch).loss


class _OwnNorm(nn.Module):
    """A layer norm of single operations."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean, spread = x.mean(dim=-1, keepdim=True), x.var(dim=-1, keepdim=True, unbiased=False)
        return self.scale * ((x - mean) / torch.sqrt(spread + 1e-5)) + self.shift


class _OwnGelu(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = torch.sqrt(torch.tensor(2.0 / torch.pi))
        return 0.5 * x * (1 + torch.tanh(scale * (x + 0.044715 * torch.pow(x, 3))))


class _Block(nn.Module):
    def __init__(self, width: int, heads: int, norm: Callable[[int], nn.Module], gelu: nn.Module, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.norm1, self.norm2 = norm(width), norm(width)
        parts = 1 if fused else 3
        self.parts = nn.ModuleList(nn.Linear(width, 3 * width // parts, bias=False) for _ in range(parts))
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), gelu, nn.Linear(4 * width, width))
        self.drop, self.drop_scores = nn.Dropout(0.1), nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.drop(self._mix(self.norm1(x))) + x
        return self.drop(self.mlp(self.norm2(x))) + x

    def _mix(self, x: torch.Tensor) -> torch.Tensor:
        size, rows, width = x.shape
        if self.fused:
            parts = self.parts[0](x).view(size, rows, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(*parts, dropout_p=0.1, is_causal=True)
            return self.out(mixed.transpose(1, 2).contiguous().view(size, rows, width))
        shape = (size, rows, self.heads, width // self.heads)
        query, key, value = (part(x).view(shape).transpose(1, 2) for part in self.parts)
        scores = query @ key.transpose(2, 3)
        scores.masked_fill_(torch.triu(torch.ones(rows, rows), diagonal=1).bool(), -torch.inf)
        weights = self.drop_scores(torch.softmax(scores / 8, dim=-1))
        return self.out((weights @ value).transpose(1, 2).reshape(size, rows, width))


class _Gpt(nn.Module):
    """GPT-2 small with a head of its own: of single operations, of torch's modules, or with fused attention too."""

    def __init__(self, how: str) -> None:
        super().__init__()
        width, words = 768, 50257
        norm: Callable[[int], nn.Module] = _OwnNorm if how == "own" else nn.LayerNorm
        gelu = _OwnGelu() if how == "own" else nn.GELU(approximate="tanh")
        self.words, self.places, self.drop = nn.Embedding(words, width), nn.Embedding(1024, width), nn.Dropout(0.1)
        self.blocks = nn.Sequential(*(_Block(width, 12, norm, gelu, how == "fused") for _ in range(12)))
        self.norm, self.head = norm(width), nn.Linear(width, words, bias=False)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.drop(self.words(words) + self.places(torch.arange(words.shape[1])))
        return self.head(self.norm(self.blocks(x)))


def _gpt(name: str, cell: Row) -> tuple[Any, Any, Any]:
    def inputs(batch: int) -> Any:
        words = torch.zeros(batch, 1024, dtype=torch.int64)
        return words, words.clone()

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        return F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())

    return lambda: _Gpt(name), inputs, loss


_KINDS = {"image": _images, "bert": _bert, "gpt": _gpt}


def _operation(name: str, cell: Row) -> Recipe:
    """One operation forward and backward on the same input each time, whose gradient stays."""

    def step(state: Any, _: object) -> None:
        held, run = state
        out = run()
        made = held[-1] if name in _WITH_GRADIENT else torch.randn_like(out) if out.dim() else None
        out.backward(made, retain_graph=name != "head and loss")

    return Recipe(build=lambda: _OPERATIONS[name](cell["size"]), batch=lambda n: torch.zeros(n), step=step, like="cuda")


def _input(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype).requires_grad_()


def _cross_entropy(words: int) -> Any:
    x, target = _input(16384, words), torch.zeros(16384, dtype=torch.int64)
    return (x, target), lambda: F.cross_entropy(x, target)


def _mlp(act: nn.Module, x: torch.Tensor) -> Any:
    up, gate, down = (nn.Linear(*shape, bias=False).to(torch.bfloat16)
                      for shape in ((4096, 11008), (4096, 11008), (11008, 4096)))  # fmt: skip
    return (x, up, gate, down), lambda: down(act(gate(x)) * up(x))


def _layer_norm(width: int) -> Any:
    x, norm = _input(4096, width), nn.LayerNorm(width)
    return (x, norm, torch.randn_like(x)), lambda: norm(x)


def _group_norm(channels: int) -> Any:
    x, norm = _input(128, channels, 512), nn.GroupNorm(channels // 4, channels)
    return (x, norm, torch.randn_like(x)), lambda: norm(x)


def _rms_norm(width: int) -> Any:
    x, weight = _input(2048, width, dtype=torch.bfloat16), nn.Parameter(torch.ones(width))

    def run() -> torch.Tensor:
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return weight * wide.to(x.dtype)

    return (x, weight, torch.randn_like(x)), run


def _embedding(words: int) -> Any:
    table, indices = nn.Embedding(words, 4096), torch.zeros(8, 2048, dtype=torch.int64)
    return (table, indices), lambda: table(indices)


def _kl_div(words: int) -> Any:
    x, target = _input(16384, words).log_softmax(dim=-1), torch.randn(16384, words).softmax(dim=-1)
    return (x, target), lambda: F.kl_div(x, target, reduction="batchmean")


def _head_loss(rows: int) -> Any:
    head, x = nn.Linear(4096, 128256, bias=False).to(torch.bfloat16), _input(rows, 4096, dtype=torch.bfloat16)
    target = torch.zeros(rows, dtype=torch.int64)
    # the script makes the head that it compares with too, and does not use it
    idle = torch.empty_like(head.weight)
    return (head, x, target, idle), lambda: F.cross_entropy(head(x), target)


# those whose script makes the gradient of the result once
_WITH_GRADIENT = ("layer norm", "group norm", "rms norm")
_OPERATIONS = {
    "cross entropy": _cross_entropy,
    "swiglu": lambda rows: _mlp(nn.SiLU(), _input(4, rows, 4096, dtype=torch.bfloat16)),
    "geglu": lambda rows: _mlp(nn.GELU(approximate="tanh"), _input(8, rows, 4096, dtype=torch.bfloat16)),
    "layer norm": _layer_norm,
    "group norm": _group_norm,
    "rms norm": _rms_norm,
    "embedding": _embedding,
    "kl div": _kl_div,
    "head and loss": _head_loss,
}

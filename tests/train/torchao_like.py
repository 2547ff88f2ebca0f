"""A package named torchao on disk, for machines without the real one: AdamW with moments in tensors made of two."""

from __future__ import annotations

import pathlib
import sys

SOURCE = '''
import torch
from torch import Tensor

aten = torch.ops.aten


class Held(Tensor):
    """Numbers as int8 codes and one scale."""

    @staticmethod
    def __new__(cls, codes, scale):
        return Tensor._make_wrapper_subclass(cls, codes.shape, dtype=torch.float32, device=codes.device)

    def __init__(self, codes, scale):
        self.codes, self.scale = codes, scale

    def __tensor_flatten__(self):
        return ["codes", "scale"], None

    @classmethod
    def __tensor_unflatten__(cls, parts, context, size, stride):
        return cls(parts["codes"], parts["scale"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs=None):
        # as the real one: what is moved is not copied where it lies there already
        assert func in (aten.detach.default, aten._to_copy.default), func
        return cls(args[0].codes, args[0].scale)

    def read(self):
        return self.codes.float() * self.scale

    def keep(self, values):
        self.scale.copy_(values.abs().max() / 127 + 1e-20)
        self.codes.copy_((values / self.scale).round().to(torch.int8))


torch.serialization.add_safe_globals([Held])


class AdamW8bit(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, amsgrad=False):
        super().__init__(params, {"lr": torch.tensor(lr), "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            assert isinstance(group["lr"], Tensor)
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["step"] = torch.tensor(0.0)
                    for name in ("exp_avg", "exp_avg_sq"):
                        state[name] = Held(torch.zeros(p.shape, dtype=torch.int8), torch.zeros(()))
                state["step"] += 1
                first = state["exp_avg"].read().lerp(p.grad, 0.1)
                second = state["exp_avg_sq"].read().lerp(p.grad.square(), 0.05)
                state["exp_avg"].keep(first)
                state["exp_avg_sq"].keep(second)
                p.sub_(group["lr"] * first / (second.sqrt() + 1e-3))
'''


def plant(folder: pathlib.Path, monkeypatch) -> None:
    """Let `import torchao` find it in this process, for one test."""
    package = folder / "torchao"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "optim.py").write_text(SOURCE)
    forget(monkeypatch)
    monkeypatch.syspath_prepend(str(folder))


def forget(monkeypatch) -> None:
    """As if torchao had not been imported yet; what is imported of it from now on is forgotten after the test.

    Also its classes that files may hold: PyTorch finds them by name, and of two with one name it takes either."""
    import torch.serialization as files

    allowed = [each for each in files.get_safe_globals() if "torchao" not in getattr(each, "__module__", "")]
    files.clear_safe_globals()
    files.add_safe_globals(allowed)
    known = {name for name in sys.modules if name.partition(".")[0] == "torchao"}
    for name in known | {"torchao", "torchao.optim"}:
        monkeypatch.setitem(sys.modules, name, None)
        del sys.modules[name]


def hide(monkeypatch) -> None:
    """As if torchao were not installed."""
    forget(monkeypatch)
    monkeypatch.setattr("gpudoc.train.start.levers.has_torchao", lambda: False)
    monkeypatch.setitem(sys.modules, "torchao", None)

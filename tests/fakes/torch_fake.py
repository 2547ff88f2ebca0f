"""Stands in for torch in the examined Python; what it is and does comes from the JSON file beside it."""

import json
import os
import pathlib
import time
import types
import warnings

_SAID = json.loads(pathlib.Path(__file__).with_name("said.json").read_text())
time.sleep(_SAID.get("import_delay", 0))
if _SAID.get("import_signal"):
    os.kill(os.getpid(), _SAID["import_signal"])
if _SAID.get("import_error"):
    raise ImportError(_SAID["import_error"])
__version__ = _SAID["version"]
version = types.SimpleNamespace(cuda=_SAID["cuda"], hip=_SAID["hip"], xpu=_SAID.get("xpu"))
backends = types.SimpleNamespace(
    mps=types.SimpleNamespace(is_built=lambda: False, is_available=lambda: False),
    cudnn=types.SimpleNamespace(version=lambda: 90100, is_available=lambda: _SAID["cuda"] is not None),
)
float32 = "float32"
_C = types.SimpleNamespace(_cuda_getArchFlags=lambda: " ".join(_SAID["archs"]) or None)


class _Cuda:
    def is_available(self):
        time.sleep(_SAID.get("available_delay", 0))
        if _SAID.get("warning"):
            warnings.warn(_SAID["warning"], stacklevel=2)
        return _SAID["available"]

    def device_count(self):
        return _SAID["count"]

    def get_arch_list(self):
        return _SAID["archs"] if _SAID["available"] else []


cuda = _Cuda()


class _Tensor:
    def __init__(self, device="cpu"):
        self.device = device

    def reshape(self, *_):
        return self

    def to(self, device):
        if _SAID.get("kernel_error"):
            raise RuntimeError(_SAID["kernel_error"])
        return _Tensor(device)

    def cpu(self):
        return _Tensor()

    def sum(self):
        return self

    def __add__(self, other):
        return self

    def __matmul__(self, other):
        return self

    def __float__(self):
        return 1.0


def arange(*_, **__):
    return _Tensor()


def allclose(*_, **__):
    return not _SAID.get("wrong_result", False)


def get_num_threads():
    return _SAID["threads"]

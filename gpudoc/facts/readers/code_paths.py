"""Whose code a file is, judged from its path as a traceback of any machine prints it."""

from __future__ import annotations

from typing import Literal

from gpudoc.patterns import Pattern

Owner = Literal["user", "library", "torch", "standard"]

# what Python calls the code that somebody typed or pasted; other names in angle brackets are its own
_TYPED = ("<stdin", "<ipython", "<string", "<cell", "<console", "<input", "<command", "cell in", "input in")
# pip's and Debian's folder of packages, and what setuptools unpacked
_PACKAGES = ("site-packages/", "dist-packages/")
_TORCH_PARTS = (
    r"nn|optim|autograd|utils|cuda|distributed|_dynamo|_inductor|_functorch|_higher_order_ops|fx|jit|amp|multiprocessing|"
    r"_ops\.py|_tensor\.py|functional\.py|serialization\.py|storage\.py|random\.py|export|ao|fft|linalg|sparse|_refs|"
    r"_prims|_meta_registrations\.py|_subclasses|_jit_internal\.py|_library|__init__\.py"
)
_TORCH = Pattern(rf"(?:^|/)torch/(?:{_TORCH_PARTS})(?:/|$)")
_STANDARD = Pattern(
    r"(?i)/lib(?:64)?/python3?(?:\.\d+)?t?/|/python\d*\.zip/|/python3?\d*/lib/|/envs/[^/]+/lib/|conda\d?/lib/|"
    r"/python3?\.\d+(?:\.\d+)?/lib/|"
    # an installation under another name
    r"/lib/(?:multiprocessing|concurrent/futures|importlib|asyncio)/"
)
_LIBRARIES = (
    r"transformers|accelerate|datasets|diffusers|peft|trl|tokenizers|huggingface_hub|lightning|pytorch_lightning|"
    r"lightning_fabric|torchvision|torchaudio|deepspeed|vllm|timm|numpy|pandas|scipy|sklearn|PIL|hydra|omegaconf|ray|wandb"
)
# a library that is installed from its checkout, or whose path was cut before the library's name
_LIBRARY = Pattern(rf"/src/(?:{_LIBRARIES})/|^(?:{_LIBRARIES})/|\.egg/")
# launchers as pip installs them: bin/torchrun, Scripts\accelerate.exe\__main__.py
_LAUNCHER = Pattern(r"(?i)/bin/[\w-]+$|/scripts/[\w-]+\.exe/|^/?usr/bin/[\w-]+$")


def owner_of(path: str) -> Owner:
    """Whose code the file is; what no path of a library, of torch or of Python looks like is the user's."""
    plain = path.replace("\\", "/")
    if plain.startswith("<") or plain[:4] in ("Cell", "Inpu"):
        return "user" if plain.lower().startswith(_TYPED) else "standard"
    for folder in _PACKAGES:
        at = plain.rfind(folder)
        if at >= 0:
            inside = plain[at + len(folder) :]
            return "torch" if inside.startswith(("torch/", "functorch/")) else "library"
    if _TORCH.search(plain):
        return "torch"
    if _LIBRARY.search(plain) or _LAUNCHER.search(plain):
        return "library"
    return "standard" if _STANDARD.search(plain) else "user"

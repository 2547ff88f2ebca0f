"""Shared libraries and compiled packages that do not fit together, as the loader or the import reports it."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.sign import OF_TORCH, by_text, quote, text_finder, words
from gpudoc.doctor.model import Evidence, Finding, Skip
from gpudoc.facts.readers.model import CleanText
from gpudoc.patterns import Pattern

# libraries in torch's own wheels, with their names as the dynamic loader writes them
_CUDA_LIBRARY = (
    r"lib(?:cudnn\w*|cublas\w*|cufft\w*|curand|cusolver\w*|cusparse\w*|cusparseLt|nccl|nvrtc[\w-]*|nvJitLink|"
    r"nvToolsExt|"
    r"cupti|cudart|cufile|nvshmem\w*)"
)
_MISSING = words(
    rf"({_CUDA_LIBRARY})[\w-]*\.so[.\d]*\W{{0,3}}:? ?cannot open shared object",
    rf"({_CUDA_LIBRARY})\.so[.\d*\[\]0-9-]* not found in the system path",
    rf"Could not load library ['\"]?({_CUDA_LIBRARY})\.so",
    rf"Unable to load any of \W{{0,3}}({_CUDA_LIBRARY})",
    rf"(?:can ?not|can't|unable to|failed to) (?:find|load|open|locate|dlopen)[^\n]{{0,40}}({_CUDA_LIBRARY})",
    r"failed to open (libnvrtc-builtins|nvrtc-builtins)",
    r"(?:Could not (?:locate|load(?: library)?)) ?(cudnn\w+64_\d+\.dll|cublas\w*64_\d+\.dll|cudart64\w*\.dll|"
    r"nvrtc\w*\.dll)",
    r"(libtorch_cuda(?:_cu|_cpp)?|libc10_cuda)\.so: cannot open shared object",
)
_UNDEFINED = words(
    r"undefined symbol: (\S+)",
    # retold without the colon: only words that look like a symbol
    r"undefined symbol [`'\"]?(_Z\w+|(?:nccl|cublas|cudnn|cusparse|nvJitLink|cu)[A-Z]\w+)",
    r"symbol not found in flat namespace \(?'?(\S+)",
    r"Symbol not found: (\S+)",
)
_TORCH_SYMBOL = Pattern(
    r"(?<!\w)_?_ZN?K?R?\w*?(?:3c10|2at|5torch|c10d|6caffe2)|^_?_Z\w*(?:at|c10|torch)\w*|aoti_|THC|THP"
)
_OWN_SYMBOL = Pattern(
    r"(?i)^_{0,2}(?:nvJitLink|cublas|cudnn|cusparse|cusolver|nccl|cufft|nvrtc|cuda[A-Z]|cu[A-Z]|iJIT|curand|cupti|"
    r"MKL|omp_)"
)
_EXTENSION_FRAME = Pattern(
    r"(?i)(?:site|dist)-packages/(?!torch/|nvidia/|ctypes|numpy/|functorch/)(\w[\w.-]*)|"
    r"\b(flash[_-]?attn\w*|xformers|mmcv|bitsandbytes|apex|deepspeed|torch[_-](?:scatter|sparse|cluster|geometric)|"
    r"detectron2|fairseq|vllm|pytorch3d|auto_?gptq|exllama\w*|causal_conv1d\w*|mamba_ssm|selective_scan\w*|"
    r"torchaudio|torchtext|onnxruntime\w*|tensorrt\w*|cupy\w*|transformer_engine\w*|faiss|spconv\w*|nvdiffrast|gsplat|"
    r"MinkowskiEngine|dgl|natten|warpctc\w*|kaolin|tinycudann|sageattention|punica|ctranslate2|pointnet2\w*|"
    r"MultiScaleDeformable\w*|\w+_cuda|\w*_ext)\b(?=[\w./-]*(?:\.so|\.pyd|\W))"
)
_TORCH_IMPORT = Pattern(
    r"torch/__init__\.py\W+line\s+\d+|from\s+torch\._C\s+import|_preload_cuda_deps|_load_global_deps"
)


def _extension(text: CleanText) -> str:
    found = text.find(_EXTENSION_FRAME)
    return "" if found is None else (found[1] or found[2])


_OPENED_LATER = Pattern(r"(?i)nvrtc|Could not load library|Unable to load any of|libcudnn_|nvJitLink|libcufile")


def _find_missing(text: CleanText) -> Iterator[Finding | Skip]:
    said = text.find(_MISSING)
    if said is None:
        return
    # the libraries that torch loads at import were there; a library that it opens later may still be missing
    if text.find(words("Is CUDA available: True")) and not _OPENED_LATER.search(said.line.text):
        return
    seen = (quote(said, "loader"),)
    extension = _extension(text)
    # torch's own import never asks for a part that its build lacks: another package does
    by_torch = text.find(_TORCH_IMPORT) is not None or not (extension or said[0].startswith(("libtorch", "libc10")))
    sure = 0.88 if by_torch else 0.5
    yield Finding(id="bundled_cuda_library_missing", confidence=sure, evidence=seen)
    if extension and Pattern(r"(?i)libcudart|libcublas|libcusparse|libcufft|libnvrtc|libcusolver").search(said[0]):
        title = f"{extension} needs a different CUDA from the one that the installed torch brings"
        sure = 0.55 if text.find(_TORCH_IMPORT) else 0.9
        yield Finding(id="extension_built_for_other_cuda", confidence=sure, title=title, evidence=seen)


def _find_undefined(text: CleanText) -> Iterator[Finding | Skip]:
    for said in text.find_all(_UNDEFINED, most=5):
        symbol = next(group for group in said.match.groups() if group).strip("'\",()")
        seen = (quote(said, "loader"),)
        in_vision = Pattern(r"(?i)torchvision").search(said.line.text) is not None
        if _OWN_SYMBOL.match(symbol):
            yield Finding(id="library_path_shadows_bundled", confidence=0.9, evidence=seen)
        elif in_vision:
            yield Finding(id="torchvision_torch_mismatch", confidence=0.9, evidence=seen)
        elif Pattern(r"libcud(?:nn|art)|libcublas|libnccl").search(said.line.text) and "libtorch" not in said.line.text:
            yield Finding(id="library_path_shadows_bundled", confidence=0.8, evidence=seen)
        elif _TORCH_SYMBOL.search(symbol) or _extension(text):
            yield Finding(id="extension_torch_abi_mismatch", confidence=0.92, evidence=seen)
        else:
            yield Finding(id="extension_torch_abi_mismatch", confidence=0.5, evidence=seen)


_BUILT_FOR = Pattern(
    r"(?i)built for:?\s*PyTorch\s+([\d.]+)(?![\d.])\S*\s+with CUDA\s+(\d+)\s*"
    r"\(you have\s+([\d.]+)(?![\d.])\S*?(?:\+cu(\d+)|\+cpu)?\)"
)


def _find_built_for(text: CleanText) -> Iterator[Finding | Skip]:
    said = text.find(_BUILT_FOR)
    if said is None:
        return
    seen = (quote(said, "xformers"),)
    other_cuda = bool(said[4]) and said[4][:2] != said[2][:2]
    same_torch = said[1] == said[3]
    if other_cuda:
        yield Finding(id="extension_built_for_other_cuda", confidence=0.9 if same_torch else 0.6, evidence=seen)
    yield Finding(id="extension_torch_abi_mismatch", confidence=0.5 if same_torch else 0.9, evidence=seen)


_NO_KERNEL = words(
    r"no kernel image is available for execution",
    r"cudaErrorNoKernelImageForDevice",
    "hipErrorNoBinaryForGpu",
)


def _find_missing_arch(text: CleanText, evidence: Evidence) -> Iterator[Finding | Skip]:
    said = text.find(_NO_KERNEL)
    if said is None or text.find(OF_TORCH):
        return
    extension = _extension(text)
    torch_fits = evidence.machine.torch.is_available is True
    if extension or text.find(words("TORCH_CUDA_ARCH_LIST")):
        sure = 0.85 if torch_fits or Pattern(r"(?i)in file|_cuda|\.cu\b|ops\.cu").search(text.flat) else 0.62
        yield Finding(id="extension_missing_arch", confidence=sure, evidence=(quote(said, "error"),))


FINDERS = (
    by_text("bundled_cuda_library_missing", _find_missing),
    by_text("extension_torch_abi_mismatch", _find_undefined),
    by_text("extension_torch_abi_mismatch", _find_built_for),
    text_finder("extension_missing_arch", _find_missing_arch),
)

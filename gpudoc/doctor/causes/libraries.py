"""Shared libraries and compiled packages that do not belong together, as loader and importer report it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoc.doctor.causes.sign import Sign, finders, quote, text_finder, words
from gpudoc.doctor.model import Evidence, Finding, Skip
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.model import Text

# libraries that torch's own wheels bring; their names as the dynamic loader writes them
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
    # retold without the colon: only what looks like a symbol
    r"undefined symbol [`'\"]?(_Z\w+|(?:nccl|cublas|cudnn|cusparse|nvJitLink|cu)[A-Z]\w+)",
    r"symbol not found in flat namespace \(?'?(\S+)",
    r"Symbol not found: (\S+)",
)
_TORCH_SYMBOL = Pattern(r"_ZN?K?R?\w*?(?:3c10|2at|5torch|c10d|6caffe2)|^_?_Z\w*(?:at|c10|torch)\w*|aoti_|THC|THP")
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
_SYSTEM_PLACE = words(
    r"LD_LIBRARY_PATH",
    r"/usr/local/cuda[\w.-]*/",
    r"/usr/lib(?:/x86_64-linux-gnu|64)?/lib(?:cu|nccl|nv)",
    r"/lib/x86_64-linux-gnu/lib(?:cudnn|cublas|nccl)",
    r"/opt/(?:cuda|conda)\S*lib",
    "LD_PRELOAD",
    "system cudnn",
)


def _extension(text: Text) -> str:
    found = text.find(_EXTENSION_FRAME)
    return "" if found is None else (found[1] or found[2])


_OPENED_LATER = Pattern(r"(?i)nvrtc|Could not load library|Unable to load any of|libcudnn_|nvJitLink|libcufile")


def _find_missing(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    del evidence
    said = text.find(_MISSING)
    if said is None:
        return
    # what torch loads at its start was there; what it opens when it is needed may still be missing
    if text.find(words("Is CUDA available: True")) and not _OPENED_LATER.search(said.line.text):
        return
    seen = (quote(said, "loader"),)
    extension = _extension(text)
    # torch's own import never asks for a part of torch that its build has not: another package does
    by_torch = text.find(_TORCH_IMPORT) is not None or not (extension or said[0].startswith(("libtorch", "libc10")))
    sure = 0.88 if by_torch else 0.5
    yield Finding(id="bundled_cuda_library_missing", confidence=sure, evidence=seen)
    if extension and re.search(r"(?i)libcudart|libcublas|libcusparse|libcufft|libnvrtc|libcusolver", said[0]):
        yield Finding(
            id="extension_built_for_other_cuda",
            confidence=0.55 if text.find(_TORCH_IMPORT) else 0.9,
            title=f"{extension} needs another CUDA than the installed torch brings",
            evidence=seen,
        )


def _find_undefined(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    del evidence
    for said in text.find_all(_UNDEFINED, most=5):
        symbol = next(group for group in said.match.groups() if group).strip("'\",()")
        seen = (quote(said, "loader"),)
        in_vision = re.search(r"(?i)torchvision", said.line.text) is not None
        if _OWN_SYMBOL.match(symbol):
            yield Finding(id="library_path_shadows_bundled", confidence=0.9, evidence=seen)
        elif in_vision:
            yield Finding(id="torchvision_torch_mismatch", confidence=0.9, evidence=seen)
        elif re.search(r"libcud(?:nn|art)|libcublas|libnccl", said.line.text) and "libtorch" not in said.line.text:
            yield Finding(id="library_path_shadows_bundled", confidence=0.8, evidence=seen)
        elif _TORCH_SYMBOL.search(symbol) or _extension(text):
            yield Finding(id="extension_torch_abi_mismatch", confidence=0.92, evidence=seen)
        else:
            yield Finding(id="extension_torch_abi_mismatch", confidence=0.5, evidence=seen)


_BUILT_FOR = Pattern(
    r"(?i)built for:?\s*PyTorch\s+([\d.]+)\S*\s+with CUDA\s+(\d+)\s*\(you have\s+([\d.]+)\S*?(?:\+cu(\d+)|\+cpu)?\)"
)


def _find_built_for(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    del evidence
    said = text.find(_BUILT_FOR)
    if said is None:
        return
    seen = (quote(said, "xformers"),)
    other_cuda = bool(said[4]) and said[4][:2] != said[2][:2]
    same_torch = said[1] == said[3]
    if other_cuda:
        yield Finding(id="extension_built_for_other_cuda", confidence=0.9 if same_torch else 0.6, evidence=seen)
    yield Finding(id="extension_torch_abi_mismatch", confidence=0.5 if same_torch else 0.9, evidence=seen)


_XFORMERS_WITHOUT_CUDA = r"cutlassF\S* is not supported because: xFormers wasn.t buil[dt] with CUDA support"
_NO_KERNEL = words(
    r"no kernel image is available for execution",
    r"cudaErrorNoKernelImageForDevice",
    "hipErrorNoBinaryForGpu",
)


def _find_missing_arch(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    said = text.find(_NO_KERNEL)
    if said is None or text.find(words(r"is not compatible with the current PyTorch", "no longer supports this GPU")):
        return
    extension = _extension(text)
    torch_fits = evidence.machine.torch.is_available is True
    if extension or text.find(words("TORCH_CUDA_ARCH_LIST")):
        sure = 0.85 if torch_fits or re.search(r"(?i)in file|_cuda|\.cu\b|ops\.cu", text.flat) else 0.62
        yield Finding(id="extension_missing_arch", confidence=sure, evidence=(quote(said, "error"),))


FINDERS = (
    text_finder("bundled_cuda_library_missing", _find_missing),
    text_finder("extension_torch_abi_mismatch", _find_undefined),
    text_finder("extension_torch_abi_mismatch", _find_built_for),
    text_finder("extension_missing_arch", _find_missing_arch),
    *finders(
        Sign(
            id="library_path_shadows_bundled",
            said=words(
                r"SUBLIBRARY_VERSION_MISMATCH",
                r"CUDNN_STATUS_VERSION_MISMATCH",
                r"cuDNN version incompatibility",
                r"compiled against \(?\d+, ?\d+, ?\d+\)? but (?:found|linked against|loaded)",
                rf"version `?{_CUDA_LIBRARY}\S*'? not (?:found|defined)",
                rf"symbol \S+,? version {_CUDA_LIBRARY}\S+ not defined",
                r"possibly due to (?:an )?(?:in)?compatib\w+ .{0,20}cudnn",
                r"Loaded runtime CuDNN library: .{0,60}but source was compiled",
                r"NCCL version mismatch|incompatible with version of NCCL",
                rf"calling init: /(?:usr/)?lib\S*{_CUDA_LIBRARY}",
            ),
            sure=0.93,
        ),
        Sign(
            id="library_path_shadows_bundled",
            said=words(
                r"(?:unset|unsetting|remov\w+|clear\w*|without|empty|fix\w*) .{0,30}LD_LIBRARY_PATH",
                r"LD_LIBRARY_PATH.{0,200}(?:wrong|conflict|instead|older|override|shadow|picks? up|loads?|before)",
                r"(?:picks? up|load(?:s|ed|ing)?|us(?:es|ing)|finds?|found) (?:the )?(?:system|conda|wrong|other|"
                r"older).{0,40}(?:cudnn|cublas|cuda|nccl)",
                rf"=> /(?:usr|lib|opt)\S*/{_CUDA_LIBRARY}\.so",
            ),
            unless=words(r"Error 80[34]\b", "libcuda.so", "/compat"),
            sure=0.75,
        ),
        Sign(
            id="library_path_shadows_bundled",
            said=words(
                r"CUDNN_STATUS_NOT_INITIALIZED",
                r"CUBLAS_STATUS_(?:NOT_INITIALIZED|INVALID_VALUE|NOT_SUPPORTED)",
                r"CUDNN_STATUS_\w+",
            ),
            also=_SYSTEM_PLACE,
            sure=0.75,
        ),
        Sign(
            id="library_path_shadows_bundled",
            said=words(r"CUBLAS_STATUS_INVALID_VALUE", r"CUDNN_STATUS_NOT_SUPPORTED"),
            unless=words(r"Plan failed with"),
            sure=0.5,
        ),
        Sign(
            id="torchvision_torch_mismatch",
            said=words(
                r"operator torchvision::\w+ does not exist",
                r"Couldn't load custom C\+\+ ops",
                r"Could not run 'torchvision::\w+' with arguments from the 'CUDA",
                r"PyTorch and torchvision (?:were|have) compiled with different CUDA",
                r"module 'torchvision' has no attribute '(?:extension|_C|ops|_meta\w+)'",
                r"No such operator torchvision::",
                r"torchvision[\d. +cu]{1,20} (?:requires|depends on) torch\s?==",
                r"torchvision[/\\](?:image\.(?:so|pyd)|_C\S*\.(?:so|pyd)).{0,200}(?:undefined symbol|could not be "
                r"found|symbol not found)",
                r"torchvision \S+ has requirement torch==",
            ),
            sure=0.93,
        ),
        Sign(
            id="torchvision_torch_mismatch",
            said=words(r"Failed to load image Python extension"),
            sure=0.7,
            severity="warning",
        ),
        Sign(
            id="torchvision_torch_mismatch",
            said=words(
                r"torchvision\.transforms\.functional_tensor",
                r"cannot import name '\w+' from 'torchvision",
            ),
            sure=0.75,
        ),
        Sign(
            id="numpy2_abi",
            said=words(
                r"compiled using NumPy 1\.x cannot be run in",
                r"_ARRAY_API not found",
                r"numpy\.dtype size changed",
                r"Numpy is not available",
                r"numpy\.core\.multiarray failed to import",
                r"was removed in the NumPy 2\.0 release",
                r"numpy\.ndarray size changed",
                r"module compiled against (?:API|ABI) version 0x\w+ but this version of numpy",
            ),
            sure=0.95,
        ),
        Sign(
            id="triton_torch_mismatch",
            said=words(
                r"cannot import name '\w+' from (?:partially initialized module )?'triton\b",
                r"module 'triton[\w.]*' has no attribute",
                r"No module named 'triton\.",
                r"requires (?:pytorch-)?triton\W{0,3}==",
                r"fields\(AttrsDescriptor\)|AttrsDescriptor\b.{0,200}must be called with a dataclass",
                r"'(?:CompiledKernel|JITFunction|Autotuner|ASTSource|AttrsDescriptor)' object has no attribute",
                r"(?:JITFunction|Autotuner|triton\.\w+)\S*\(\) got an unexpected keyword",
                r"triton.{0,60}(?:incompatible|mismatch|does ?n.t match|wrong version|version conflict)",
                r"(?:Autotuner|JITFunction|compile)\S*\(\) (?:missing|takes) \d+ .{0,60}triton",
            ),
            sure=0.92,
        ),
        Sign(
            id="mixed_cuda_packages",
            said=words(
                r"(?:two|both|several|different|multiple|mixed|mixing|conflicting) (?:\w+ ){0,3}(?:cuda|cu1\d) "
                r"(?:\w+ )?(?:versions?|packages|generations|libraries|runtimes)",
                r"nvidia-[\w-]+-cu(\d\d)\b.{0,3000}nvidia-[\w-]+-cu(?!\1)\d\d\b",
            ),
            sure=0.8,
        ),
        Sign(
            id="glibc_too_old",
            said=words(
                r"version [`'\"]?GLIBC_2\.\d+'? ?(?:not found|required)",
                r"GLIBC_2\.\d+\S{0,2} not found",
                r"manylinux_2_\d+\S* is not a supported wheel",
            ),
            sure=0.95,
        ),
        Sign(
            id="libstdcxx_too_old",
            said=words(
                r"version [`'\"]?(?:GLIBCXX_3\.4\.\d+|CXXABI_1\.3\.\d+)'? ?(?:not found|required)",
                r"(?:GLIBCXX_3\.4\.\d+|CXXABI_1\.3\.\d+)\S{0,2} not found",
            ),
            sure=0.95,
        ),
        Sign(
            id="libcuda_not_linkable",
            said=words(
                r"cannot find -lcuda\b",
                r"libcuda\.so cannot found",
                r"libcuda\.so (?:cannot be|(?:is )?not (?:in )?)found",
                r"unable to find library -lcuda\b",
                r"ld: .{0,60}-lcuda\b",
            ),
            sure=0.95,
        ),
        Sign(
            id="windows_dll_dependency_missing",
            said=words(
                r"WinError (?:126|127|1114|182|193)\]",
                r"DLL load failed",
                r"\.dll.{0,12} or one of its dependencies",
                r"The specified module could not be found",
                r"vcruntime140\S*\.dll|msvcp140\.dll|libomp140\S*\.dll",
                r"Microsoft Visual C\+\+ Redistributable is not installed",
            ),
            unless=words("DLL load failed while importing (?:flash|xformers|mmcv|bitsandbytes)"),
            sure=0.93,
        ),
        Sign(
            id="python_unsupported_by_wheel",
            said=words(
                r"(?:Could not find a version that satisfies the requirement|No matching distribution found for) "
                r"(?:py)?torch(?:vision|audio)?\b",
                r"torch\S* .{0,60}has no wheels with a matching Python",
                r"no wheels (?:are available )?(?:with|for) .{0,40}(?:Python|ABI|cp3\d+)",
                r"torch-\S+-cp3\d+\S*\.whl is not a supported wheel",
                r"Unable to find installation candidates for torch",
                r"requires a different Python",
                r"(?:Python|python) 3\.\d+.{0,12}\+? (?:is )?not (?:yet )?supported (?:for|on|by|with) (?:torch|"
                r"dynamo|pytorch)",
                r"Dynamo (?:is )?not (?:yet )?supported on Python",
                r"Because .{0,80}torch.{0,160}Python.{0,60}(?:unsatisfiable|no version)",
                r"torch.{0,60}(?:does ?n.t|do not|not) support Python 3\.\d+",
                r"cp3\d+.{0,80}only .{0,20}has wheels",
            ),
            sure=0.93,
        ),
        Sign(
            id="mps_macos_too_old",
            said=words(
                r"MPS backend is supported on MacOS \d",
                r"MPS .{0,60}(?:requires?|needs?|supported on) macOS",
                r"macOS version .{0,40}(?:not|too old|at least|12\.3|13\.|14\.).{0,40}mps|current MacOS version is "
                r"not 12\.3",
            ),
            sure=0.94,
        ),
        Sign(
            id="extension_built_for_other_cuda",
            said=words(
                r"detected CUDA version \(?[\d.]+\)? mismatches the version that was used to compile",
                r"CUDA Setup failed despite (?:GPU|CUDA) being available",
                # the kernels for every card are missing too: the package did not load its CUDA part
                _XFORMERS_WITHOUT_CUDA,
                r"libbitsandbytes_cuda\d+\S* (?:not found|cannot)",
                r"Could not find the bitsandbytes CUDA binary",
                r"CUDA version.{0,60}(?:mismatch|does not match).{0,60}(?:compile|torch|pytorch)",
                r"(?:flash_attn|apex|deepspeed|mmcv)\S* .{0,60}(?:compiled|built) (?:for|with|against) (?:CUDA|cu)",
            ),
            sure=0.85,
        ),
        Sign(
            id="extension_missing_arch",
            said=words(
                r"FlashAttention only supports (?:Ampere|Turing)\b",
                r"FlashAttention .{0,30}only supports? .{0,30}GPUs or newer",
                r"requires device with capability > \(\d, \d\) but your GPU",
                r"(?:flash|xformers|bitsandbytes|marlin|awq|gptq).{0,80}(?:requires?|only supports?) "
                r".{0,30}(?:compute capability|sm_?\d)",
                r"no kernel image.{0,60}(?:ops\.cu|csrc|\.cu(?:h)?\b)",
                r"error in \w+_cuda: no kernel image",
                # the C++ file of another package, then the error
                r"(?:csrc|\.cuh?\b|_template\.h)\S{0,80} ?no kernel image",
            ),
            unless=words(_XFORMERS_WITHOUT_CUDA),
            sure=0.9,
        ),
        Sign(
            id="extension_torch_abi_mismatch",
            said=words(
                r"DLL load failed while importing (?:flash_attn\w*|xformers|_ext|mmcv|bitsandbytes|\w+_cuda)",
                r"(?:compiled|built) (?:with|for|against) (?:a )?(?:different|another|older) (?:version of "
                r")?(?:py)?torch",
            ),
            sure=0.85,
        ),
    ),
)

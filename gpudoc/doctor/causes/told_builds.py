"""Libraries, compilers and builds that do not belong together, told in sentences or shown by what fails beside them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoc.doctor.causes.said_facts import other_source
from gpudoc.doctor.causes.sentences import together
from gpudoc.doctor.causes.sign import Sign, finders, quote, text_finder, words
from gpudoc.doctor.model import Evidence, Finding, Skip
from gpudoc.doctor.setting import known
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.model import Text

_NO_KERNEL = words(
    r"no kernel image is available", r"NoKernelImageForDevice", r"invalid device function|InvalidDeviceFunction"
)
# it was compiled here, for the cards that its compiler was told of
_COMPILED = words(
    r"\b(?:compil|rebuil|buil[dt])\w*[^.\n]{0,40}\b(?:from source|extensions?|ops?|kernels?|setup\.py|without (?:any )?"
    r"(?:issues?|errors?|problems?))",
    r"setup\.py\W{0,3} ?(?:build|install|develop)|build_ext|\b(?:compile|make|build|install)\.sh\b",
    r"-gencode\b|--generate-code|arch=compute_\d|code=sm_\d",
    r"\bTORCH_CUDA_ARCH_LIST\b|CMAKE_CUDA_ARCHITECTURES",
    r"\bcustom (?:cuda )?(?:ops?|operators?|kernels?|extensions?|layers?)\b",
)
_TORCH_RUNS = words(
    r"\b(?:simple|plain|basic|other|normal|pure|native|ordinary)\b[^.\n]{0,30}\b(?:py)?torch\b[^.\n]{0,60}"
    r"\b(?:works?|fine|ok|no (?:error|problem)|not (?:\w+ )?(?:produce|give|show|fail|raise|throw|cause|trigger))",
    r"\b(?:py)?torch (?:itself|alone|by itself|on its own)\b[^.\n]{0,24}\b(?:works?|fine|ok|runs?)\b",
)
_TORCH_COMPILED = words(
    r"(?:compil|buil[dt])\w* (?:py)?torch\b(?![-_ ]?\w+ from| ?extension)[^.\n]{0,24}(?:from|source|master)"
)
_NOT_FIT = words(r"is not compatible with the current PyTorch", r"no longer supports this GPU")


def _find_unbuilt_arch(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """No kernel for this card where something was compiled by hand, or where torch itself runs."""
    del evidence
    said = text.find(_NO_KERNEL)
    if said is None or text.find(_NOT_FIT) is not None or text.find(_TORCH_COMPILED) is not None:
        return
    if (named := other_source(text)) is not None:
        yield Finding(id="extension_missing_arch", confidence=0.85, evidence=(quote(named, "source file"),))
        return
    runs, compiled = text.find(_TORCH_RUNS), text.find(_COMPILED)
    beside = runs or compiled
    if beside is not None:
        sure = 0.8 if runs and compiled else 0.66
        seen = (quote(said, "error"), quote(beside, "beside it"))
        yield Finding(id="extension_missing_arch", confidence=sure, evidence=tuple(dict.fromkeys(seen)))


# libraries of torch that a compiled package names: torch's own import never looks for one that its build has not
_TORCH_LIBRARY = Pattern(
    r"(?i)\blib(?:torch_cuda_cu|torch_cuda_cpp|torch_cuda|torch_hip|c10_cuda|c10_hip|torch_python|torch_cpu|torch|"
    r"c10)\.so"
    r"[\w.]*\W{0,3}:? ?cannot open shared"
)
_TORCH_IMPORT = Pattern(r"torch/__init__\.py\W+(?:line\s+)?\d+|from\s+torch\._C\s+import\s+\*")


def _find_other_torch(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """A package that wants a library of torch by a name which this torch does not have."""
    del evidence
    said = text.find(_TORCH_LIBRARY)
    if said is not None and text.find(_TORCH_IMPORT) is None:
        seen = (quote(said, "loader"),)
        yield Finding(id="extension_torch_abi_mismatch", confidence=0.8, evidence=seen)
        yield Finding(id="extension_built_for_other_cuda", confidence=0.45, evidence=seen)


_TORCH = words(r"\b(?:py)?torch\b")
_MACOS = Pattern(r"(?i)\bmac ?os\W{0,3}(\d\d)(?:\.(\d+))?")
_TORCH_VERSION = Pattern(r"(?i)\b(?:py)?torch\b(?!vision|audio)[^\n\d]{0,12}?v?(\d\.\d{1,2})\.\d+")
_MPS_FALSE = Pattern(
    r"(?i)\bmps\b[^\n]{0,40}?(?:is_)?available\W{0,8}(?:(?:is|returns?|gives?|prints?|says?)\s)?"
    r"\W{0,4}(?:False|no\b)"
)
_MPS_MISSING = words(
    r"\bmps\b[^.\n]{0,30}(?:not|n't|un)[ -]?(?:available|supported|found|detected|working|recogni\w+)",
    r"(?:can ?not|can't|unable to|not) (?:\w+ )?(?:use|find|enable|detect|access)[^.\n]{0,16}\bmps\b",
    r"\bmps\b (?:\w+ ){0,3}(?:does|did|do)(?:n't| not) (?:\w+ )?work|\bmps\b[^.\n]{0,40} not work for me",
)
# the first macOS of each: torch 1.12 (its release notes), 2.5 (pytorch issue 139425), 2.10 (pytorch issue 164943)
_FIRST_MACOS = (((1, 0), (12, 3)), ((2, 5), (13, 0)), ((2, 10), (14, 0)))


def _find_old_macos(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """MPS that is built and not there, on a macOS from before the one that this torch asks for."""
    system, missing = text.find(_MACOS), text.find(_MPS_FALSE) or text.find(_MPS_MISSING)
    if system is None or missing is None:
        return
    release = (int(system[1]), int(system[2] or 0))
    named = text.find(_TORCH_VERSION)
    said = known(evidence.machine.torch.version) or (named[1] if named else None)
    # a torch of unknown release is most likely a recent one
    version = _pair(said or "2.5")
    wanted = [macos for torch, macos in _FIRST_MACOS if version >= torch][-1]
    if release < wanted:
        title = f"MPS of torch {version[0]}.{version[1]} needs macOS {wanted[0]}.{wanted[1]}, this is {system[0]}"
        seen = (quote(system, "system"), quote(missing, "torch"))
        yield Finding(
            id="mps_macos_too_old", confidence=0.9 if said else 0.66, title=title if said else "", evidence=seen
        )


def _pair(version: str) -> tuple[int, int]:
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (1, 12)


_GLIBCXX = words(r"\bGLIBCXX_3\.4\.\d+", r"\bCXXABI_1\.3\.\d+")
_GLIBC = words(r"\bGLIBC_2\.\d+")
_LIBCUDA = words(r"\blibcuda\.? ?so\b(?!\.\d)", r"-lcuda\b")
_LACKS = words(
    r"\b(?:not|no|cannot|can't|couldn't|doesn't|isn't|without|missing|lack\w*|absent|unable|fail\w*|wants?|needs?|"
    r"requir\w*|search\w*|only)\b",
    "找不到|缺少|没有",
)
_LINKS = words(
    r"\blinks?\b|\blinking\b|\blinker\b|\bsymlink\w*|\bsymbolic\b|\bld\b|\bgcc\b", r"triton|inductor|torch\.compile"
)


def _find_system_libraries(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """A version of the C or C++ library that is asked for in vain, a libcuda that the linker does not find."""
    del evidence
    newer = together(text, _GLIBCXX, _LACKS)
    if newer is not None:
        yield Finding(id="libstdcxx_too_old", confidence=0.82, evidence=(quote(newer, "library"),))
    glibc = together(text, _GLIBC, _LACKS)
    if glibc is not None:
        yield Finding(id="glibc_too_old", confidence=0.82, evidence=(quote(glibc, "library"),))
    link = together(text, _LIBCUDA, _LACKS)
    if link is not None and text.find(_LINKS) is not None:
        yield Finding(id="libcuda_not_linkable", confidence=0.76, evidence=(quote(link, "linker"),))


FINDERS = (
    text_finder("extension_missing_arch", _find_unbuilt_arch),
    text_finder("extension_torch_abi_mismatch", _find_other_torch),
    text_finder("mps_macos_too_old", _find_old_macos),
    text_finder("libstdcxx_too_old", _find_system_libraries),
    *finders(
        Sign(
            id="mps_macos_too_old",
            said=words(
                r"Error: (?:MPS\W|[^\n]{0,60}\bMPS\b)[^\n]{0,160}\bmac ?OS ?1\d",
                r"Error: [^\n]{0,80}\bmac ?OS ?1\d[^\n]{0,60}\bMPS\b",
                r"Output channels > 65536 not supported at the MPS device",
                r"\bMPS\b[^\n]{0,40} only (?:supported|available) on mac ?OS ?1\d",
            ),
            sure=0.86,
        ),
        Sign(
            id="libcuda_mismatch_803",
            said=words(
                r"unsupported display driver",
                r"compat(?:ibility)? (?:lib\w*|layer|dir\w*)[^.\n]{0,60}\b(?:overrid\w+|shadow\w*|take\w* precedence|"
                r"instead of|before) (?:\w+ ){0,3}(?:host|driver)",
                r"(?:remov\w+|strip\w*|delet\w+|unset\w*|rm -rf?)[^\n]{0,40}\bcompat\b[^\n]{0,80}",
            ),
            also=words(r"\bcuda\b"),
            unless=words(r"\b804\b|forward compatibility was attempted|CompatNotSupported"),
            sure=0.8,
        ),
        Sign(
            id="extension_built_for_other_cuda",
            said=words(
                r"(?:not found|\bno|missing|can ?not find|can't find|could not find)\W{0,3} ?:? ?(?:\S*/)?"
                r"libbitsandbytes_cuda\d+",
                r"libbitsandbytes_cuda\d+\S* (?:is |was )?(?:not found|missing|does not exist)",
                r"CUDA SETUP: (?:Required library version not found|CUDA detection failed)",
                r"Configured CUDA binary not found|bitsandbytes library load error",
            ),
            sure=0.85,
        ),
        Sign(
            id="mixed_cuda_packages",
            said=words(
                r"(?:conda|pip3?|mamba) install[^.\n]{0,60}\b(?:chang|replac|downgrad|overwr|upgrad)\w*[^.\n]{0,30}"
                r"\b(?:cudnn|cudatoolkit|cuda|cublas)\b",
                r"(?:conda|pip3?|mamba) install[^.\n]{0,60}\b(?:cudnn|cudatoolkit|cuda|"
                r"cublas)\b[^.\n]{0,20}\b(?:chang\w*|"
                r"replaced|downgraded|overwritten|upgraded)",
                r"\b(?:pip|conda)\b[^.\n]{0,30}\b(?:and|plus|as well as)\b[^.\n]{0,20}\b(?:conda|pip)\b[^.\n]{0,40}"
                r"\b(?:cuda|cudatoolkit|torch|pytorch)\b[^.\n]{0,40}\b(?:both|two|twice|conflict\w*|mixed)",
            ),
            also=_TORCH,
            sure=0.66,
        ),
        Sign(
            id="mixed_cuda_packages",
            said=words(
                r"multiple CuPy packages are installed",
                r"\bcupy-cuda(1[0-3])\d?x?\b[^\n]{0,60}\n?[^\n]{0,60}\bcupy-cuda(?!\1)1[0-3]\d?x?\b",
                r"\bjax-cuda(1[0-3])-(?:plugin|pjrt)\b.{0,600}\bjax-cuda(?!\1)1[0-3]-(?:plugin|pjrt)\b",
                # from CUDA 13 on these have no generation in their name
                r"\bnvidia-(cublas|cuda-runtime|cufft|cusparse|cusolver|curand)(?:==|"
                r"\s+)13\.\d.{0,2000}\bnvidia-\1-cu1[12]\b",
                r"\bnvidia-(cublas|cuda-runtime|cufft|cusparse|cusolver|"
                r"curand)-cu1[12]\b.{0,2000}\bnvidia-\1(?:==|\s+)13\.\d",
            ),
            sure=0.85,
        ),
        Sign(
            id="windows_dll_dependency_missing",
            said=words(
                r"(?:error|fail\w*|problem|trouble|unable|can ?not|missing)[^\n.]{0,40}\b(?:fbgemm|c10(?:_cuda)?|"
                r"torch_\w+|"
                r"shm|asmjit|libiomp5md|caffe2\w*|nvfuser_\w+|uv)\.dll\b",
                r"\b(?:fbgemm|c10(?:_cuda)?|torch_\w+|shm|asmjit|libiomp5md|"
                r"caffe2\w*)\.dll\b[^\n.]{0,40}(?:not (?:found|be)|"
                r"missing|fail\w*|error|加载失败|找不到|缺失)",
            ),
            sure=0.82,
        ),
        Sign(
            id="bundled_cuda_library_missing",
            said=words(
                r"\blib(?:cudnn|cublas|cufft|curand|cusolver|cusparse|nccl|nvrtc|nvJitLink|cudart|"
                r"cupti)\w*\.so\S{0,60}:? "
                r"cannot open shared",
                r"\blib(?:cudnn|cublas|cufft|curand|cusolver|cusparse|nccl|nvrtc|nvJitLink|"
                r"cupti)\w*\.so\S{0,12} (?:file |"
                r"library )?(?:is |was |are )?(?:not found|missing)",
            ),
            also=words(r"import torch\b", r"torch/__init__\.py"),
            sure=0.7,
        ),
        Sign(
            id="numpy2_abi",
            said=words(
                r"downgrad\w+[^.\n]{0,24}\bnumpy\b", r"\bnumpy\b[^.\n]{0,40}\bdowngrad\w+", r"numpy ?(?:>=?|≥) ?2\b"
            ),
            also=words(r"\bissues?\b|\bproblems?\b|\bwarnings?\b"),
            unless=words(r"Successfully installed|Requirement already satisfied"),
            sure=0.6,
        ),
    ),
)

"""Packages beside torch and torch's own build, as people tell of them: Triton, torchvision, another vendor's card."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.sentences import together
from gpudoc.doctor.causes.sign import UNAVAILABLE, Sign, finders, quote, text_finder, words
from gpudoc.doctor.model import Evidence, Finding, Skip, observe
from gpudoc.doctor.setting import known
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.model import Text
from gpudoc.knowledge.compatibility import triton_for

_TRITONS = Pattern(
    r"(?im)^\W{0,6}(?:\[(?:pip3?|conda)\]\s+)?((?:pytorch-)?triton(?:-(?:nightly|windows|rocm))?)(?:==|\s+)\d+\.\d"
)
_TRITON = words(r"\btriton\b")
_TRITON_CHANGED = words(
    r"\btriton(?:-windows)?\W{0,4}(?:==|>=|=|v|version)?\W{0,3}\d\.\d",
    r"\b(?:latest|nightly|newer|older|newest|new|old|another|wrong|different) (?:\w+ ){0,2}triton\b",
    r"(?:upgrad|updat|downgrad|pin|install)\w* (?:\w+ ){0,3}triton\b",
    r"\btriton\b[^.\n]{0,30}(?:upgrad|updat|downgrad|pinned|remov|renam|chang)\w*",
)
_BREAKS = words(
    r"(?:Import|Attribute|Type|ModuleNotFound)Error",
    r"\bcompatib\w+ (?:issue|problem|error)|\bincompatib\w+|\bconflicts?\b",
    r"\bbreak\w*|\bbroke\w*|\bfail\w*|(?:not|n't|no longer) work\w*",
)
_USES_TRITON = words(r"torch\.compile|_?inductor|dynamo|flex_attention|unsloth|vllm|sglang|sageattention|\btorch\b")
# a kernel of somebody's own that does not compile is no matter of versions
_OWN_KERNEL = words(
    r"@triton\.jit|\btl\.\w+\(|OutOfResources|ptxas|cannot find -l|gcc failed|illegal memory|Python\.h|"
    r"returned non-zero"
)


def _find_triton(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """Two distributions of Triton in one list of packages, or a release of it that broke what asks for it."""
    names = {m[1].lower(): m for m in text.find_all(_TRITONS, most=20)}
    if len(names) > 1:
        first = next(iter(names.values()))
        seen = (observe("packages", " and ".join(sorted(names)), first.line.origin),)
        yield Finding(id="triton_torch_mismatch", severity="warning", confidence=0.7, evidence=seen)
        return
    if text.find(_OWN_KERNEL) is not None or _belong_together(text, evidence):
        return
    changed = together(text, _TRITON_CHANGED, _BREAKS)
    if changed is not None and text.find(_USES_TRITON) is not None:
        yield Finding(id="triton_torch_mismatch", confidence=0.62, evidence=(quote(changed, "triton"),))


_TRITON_RELEASE = Pattern(r"(?i)\btriton\W{0,4}(?:==|version|v)?\W{0,3}(\d\.\d{1,2})")
_NIGHTLY = words(r"torch[^\w\n]{0,4}\d\.\d+\.\d+(?:\.dev|a0)\d*")
_TORCH_RELEASE = Pattern(r"(?i)\b(?:py)?torch\b(?!vision|audio)[^\n\d]{0,12}?v?(2\.\d{1,2})")


def _belong_together(text: Text, evidence: Evidence) -> bool:
    """Whether the two releases named are those of one torch; a build of its own day has a Triton of that day."""
    if text.find(_NIGHTLY) is not None:
        return True
    triton, torch = text.find(_TRITON_RELEASE), text.find(_TORCH_RELEASE)
    version = known(evidence.machine.torch.version) or (torch[1] if torch else None)
    return triton is not None and version is not None and triton_for(version) == triton[1]


_VISION = words(r"\btorchvision\b|\btorchaudio\b")
_TORCH = words(r"\b(?:py)?torch\b")
_DISAGREE = words(
    r"\b(?:in)?compatib\w+ (?:error|issue|problem)|\bincompatib\w+|\bmismatch\w*|\bconflict\w*",
    r"(?:\bnot|n't) (?:match|compatible|fit|correspond)\w*",
    "版本不(?:匹配|兼容|对应|一致)",
)


def _find_vision(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """torchvision and torch that do not fit each other, as somebody puts it."""
    del evidence
    said = together(text, _VISION, _TORCH, _DISAGREE)
    if said is not None:
        yield Finding(id="torchvision_torch_mismatch", confidence=0.68, evidence=(quote(said, "packages"),))


_NO_GPU = words(
    UNAVAILABLE,
    r"(?:not|n't) (?:able to )?(?:access|use|find|detect|recogni[sz]e|see)(?:t?ing)? (?:the |my |any |a )?"
    r"(?:amd |radeon |intel )?(?:cuda|gpu|graphics card)\b",
    r"\bno (?:supported |compatible |suitable )?gpus? (?:was |were |is |are )?(?:detected|found|available)",
    r"\b(?:falls?|falling|fell) back to (?:the )?cpu\b|\bonly (?:uses?|using|runs? on|running on) (?:my |the )?cpu\b",
    r"(?:not|un)able to (?:access|use|find|detect|see) (?:the |my |any |a )?(?:cuda|gpu)\b",
    r"\b(?:gpu|cuda)\)? (?:is )?(?:false\b|unavailable|not (?:available|found|detected|used|recogni\w+))",
    r"\bno longer (?:sees?|finds?|detects?|recogni[sz]es?) (?:the |my |any |a )?(?:cuda|gpu)\b",
)
# what only a build for NVIDIA says, or somebody who ran into it
_WANTS_NVIDIA = words(
    r"not compiled with CUDA",
    r"\b(?:requires?|needs?|wants?|asks? for|looks? for) (?:\w+ ){0,2}(?:cuda|nvidia)\b",
    r"\bcuda\b\W{0,2} (?:\w+ )?(?:could|can|does|did|will|would)(?:n't| ?not) (?:\w+ )?(?:work|use|run|be)\w*",
    r"\bno (?:nvidia|cuda)\b",
    r"(?:can|could|does)(?:'t|n't| ?not) (?:\w+ )?(?:use|get|install|have|find|run|"
    r"seem to use) (?:\w+ ){0,2}(?:cuda|gpu)\b",
)
_AMD = words(
    r"\bRX ?[4-9]\d{2,3}(?: ?(?:XTX|XT|GRE|S))?\b",
    r"\b[5-9]\d[05]0 ?XTX?\b",
    r"\bradeon\b|\bgfx\d{3,4}\b",
    r"\bAMD(?:'s|s)?\W{0,2} (?:gpus?|graphics?|(?:video )?cards?|apu)\b",
    r"\b(?:gpu|(?:graphics?|video) card|card)s? (?:is |are |from |of |by |: ?)?(?:an? )?AMD\b",
    r"not by nvidia|(?:don ?' ?t|not) have (?:an? )?nvidia (?:gpu|card)",
    "A ?卡(?!在)|AMD ?(?:的)?(?:显卡|GPU)",
)
_INTEL = words(r"\bintel\W{0,4}arc\b|\barc ?[AB][357]\d0\b|\bintel (?:iris|uhd|hd graphics)")
_OTHER_CARD = words(r"geforce|\bRTX\b|\bGTX\b|\bMX ?\d{3}\b|\btesla\b|quadro|nvidia-smi")
_FOR_THEM = words(
    r"\+rocm|ROCM used to build PyTorch: \d|\+xpu\b|rocm/pytorch|whl/(?:nightly/)?(?:rocm|xpu)|/dev/kfd",
    # who may see the card is another question
    r"\brocminfo\b|\brocm-smi\b|\bpermission\w*|\bsudo\b|\b(?:as|the) root\b|\b(?:render|video) group\b",
    r"\b(?:other|another|second|normal|non-?root|both) users?\b",
)


def _find_other_vendor(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """A card of AMD or Intel, nothing of NVIDIA, no build for it named, and a torch that sees none."""
    if evidence.machine.torch.is_available is True or text.find(_OTHER_CARD) or text.find(_FOR_THEM):
        return
    card = text.find(_AMD) or text.find(_INTEL)
    if card is None or known(evidence.machine.torch.accelerator) == "rocm":
        return
    wants, none = text.find(_WANTS_NVIDIA), text.find(_NO_GPU)
    said = wants or none
    if said is not None:
        seen = (quote(card, "GPU"), quote(said, "torch"))
        yield Finding(
            id="wrong_accelerator_build", confidence=0.87 if wants else 0.7, evidence=tuple(dict.fromkeys(seen))
        )


_INSTALLED = words(
    r"\b(?:after|since|when|once|by|from|with)\b[^.\n]{0,50}\b(?:install\w*|requirements(?:\.txt)?|"
    r"environment\.ya?ml)\b",
    r"\b(?:pip3?|conda|mamba|poetry|uv) (?:install|env|add|sync)\b",
    r"\b(?:requirements?|dependenc\w+|packages?)\b[^.\n]{0,40}\b(?:clash|conflict|replac|overwr|downgrad|chang)\w*",
)
# the driver answers: what sees no GPU is torch
_DRIVER_ANSWERS = words(
    r"nvidia-smi\b[^.\n]{0,30}\b(?:works?|fine|ok|okay|shows?|lists?|sees?|normal|correct\w*|reports?|detects?|"
    r"output)\b",
    r"\b(?:driver|drivers|cuda|cuda toolkit)\b[^.\n]{0,24}\b(?:is|are|have been|has been|was|"
    r"were)? ?(?:correctly |properly |"
    r"already |fully )?installed\b",
    r"\bi (?:have |had |already |also )*(?:installed|have) (?:the )?(?:cuda|cudnn|nvidia)",
)
# whatever else stands between a right build and its GPU: then the build is not what is asked about
_BETWEEN = words(
    r"\bdocker\b|\bcontainer\w*|\bpodman\b|\bkubernetes\b|\bwsl ?2?\b|\bslurm\b|\bsbatch\b|\bsrun\b|\bcolab\b|"
    r"\bkaggle\b|"
    r"\bcluster\b",
    r"\bmac ?os\b|\bM[1-4]\b|\bmps\b|\bjetson\b|\bradeon\b|\bAMD\b|\brocm\b|\bxpu\b",
    r"VISIBLE_DEVICES|\bsm_\d\d|\btensorflow\b|\+cu1[0-3]\d\b|\bmismatch\b|\bsuspend\w*|\bsecure boot\b|unknown error",
    r"driver (?:version )?(?:is )?(?:too old|insufficient)|couldn.t communicate|Error 80\d|is_available\(\)\W{0,8}True",
)
_DRIVER = words(r"\bdrivers?\b|nvidia-smi|nvcc|\berror\b|\bError:|Traceback|\bcu1[0-3]\d\b")


def _find_without_cuda(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """An installation after which torch sees no GPU, or a torch that sees none where the driver answers."""
    machine = evidence.machine
    if machine.torch.is_available is True or known(machine.torch.accelerator) is not None or text.find(_BETWEEN):
        return
    if text.find(_TORCH) is None:
        return
    installed = together(text, _NO_GPU, _INSTALLED, around=1)
    answers, none = text.find(_DRIVER_ANSWERS), text.find(words(UNAVAILABLE))
    if installed is not None and text.find(_DRIVER) is None:
        yield Finding(id="cpu_only_torch", confidence=0.52, evidence=(quote(installed, "after an installation"),))
    elif answers is not None and none is not None:
        seen = (quote(none, "torch"), quote(answers, "driver"))
        yield Finding(id="cpu_only_torch", confidence=0.5, evidence=tuple(dict.fromkeys(seen)))


FINDERS = (
    text_finder("triton_torch_mismatch", _find_triton),
    text_finder("torchvision_torch_mismatch", _find_vision),
    text_finder("wrong_accelerator_build", _find_other_vendor),
    text_finder("cpu_only_torch", _find_without_cuda),
    *finders(
        Sign(
            id="python_unsupported_by_wheel",
            said=words(
                r"No compatible version found for: torch",
                r"Skipping link: none of the wheel's tags match[^\n]{0,200}/torch-",
                r"no version of torch(?:vision|audio)?(?:==|>=|<)[^\n]{0,60}(?:unsatisfiable|we can conclude)",
                r"torch\S* (?:has|have) no wheels (?:are available )?(?:with|for)",
                r"The current Python version \([\d.]+\) is not allowed|does not satisfy Python>=",
            ),
            also=_TORCH,
            sure=0.82,
        ),
        Sign(
            id="cpu_only_torch",
            said=words(
                "(?:GPU|CUDA) ?版本?的?(?:torch|pytorch)? ?(?:怎么|如何|怎样)(?:安装|装)",
                "(?:怎么|如何|怎样)(?:安装|装) ?(?:GPU|CUDA) ?版",
                r"how (?:do i|to|can i|should i) (?:get|install) (?:the |a )?(?:gpu|cuda)[- ](?:enabled )?"
                r"(?:version|build)",
            ),
            also=words(UNAVAILABLE),
            unless=_BETWEEN,
            sure=0.6,
        ),
        Sign(
            id="triton_torch_mismatch",
            said=words(
                r"Cannot find a working triton installation",
                r"target must be of GPUTarget type",
                r"(?:KernelMetadata|CompiledKernel)'? object (?:has no attribute|does not (?:has|"
                r"have) any of the attributes)",
                r"module 'triton' has no attribute",
                r"(?:'(?:CompiledKernel|JITFunction|Autotuner|KernelMetadata|CudaDriver|CudaUtils)'|"
                r"triton\S*) (?:object )?"
                r"has no attribute",
                r"triton\._C\.libtriton\S*\W{0,3}[^\n]{0,60}(?:has no attribute|cannot import|removed)",
            ),
            unless=words(r"win_amd64|\bcpu[- ]only\b|device_?(?:type)?\W{1,4}cpu\b"),
            sure=0.74,
        ),
    ),
)

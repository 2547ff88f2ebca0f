"""Installation faults as people retell them and as installers, compilers and other packages report them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoc.doctor.causes.sign import UNAVAILABLE, Sign, finders, quote, text_finder, words
from gpudoc.doctor.model import Evidence, Finding, Skip
from gpudoc.doctor.setting import known
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.model import Text
from gpudoc.knowledge.compatibility import is_triton_release, triton_for

_WANTS_GPU = words(
    UNAVAILABLE,
    r"\bcuda\b[^.\n]{0,30}(?:not|n't|un)[ -]?(?:available|detected|found|enabled|working|recogni\w+)",
    r"(?:instead of|without|not us\w+|can't use|cannot use)[^.\n]{0,30}\b(?:gpu|cuda)\b",
    r"even (?:when|though|if|with)[^.\n]{0,40}\b(?:gpu|cuda)\b",
    r"\b(?:RTX|GTX)\b",
    r"whl/cu\d{2,3}\b",
    r"\b(?:cuda|gpu)[ -](?:enabled |capable )?(?:one|version|build|wheel|variant)\b",
    r"\b(?:with|has|have|on|to) (?:a |an |my |the )?gpu",
    r"(?:wrong|expected|should|want)[^.\n]{0,40}(?:version|build|wheel|torch|gpu|cuda)",
)
_TORCH = words(r"\b(?:py)?torch\b")
_FAILS = words(
    r"\berrors?\b|Error\b|error:",
    r"\bfail\w*",
    r"\bcrash\w*",
    r"not (?:work\w*|compatible|supported)|n't work|incompatib\w+",
    r"\bneeded\b|\bbreaks?\b|\bbroken?\b",
)

_TRITON_VERSION = Pattern(r"(?i)\btriton(?:[ -]windows)?\b[^\n\d]{0,24}?(\d\.\d{1,2})(?:\.\d+)?")
_TORCH_VERSION = Pattern(
    r"(?i)\b(?:py)?torch\b(?!vision|audio)[^\n\d]{0,12}?(?:<|==|>=|<=|=|:|\bv)?\s*v?(2\.\d{1,2})(?:\.\d+)?"
)
# a build of its own day belongs to a Triton of that day
_NIGHTLY = words(r"torch[^\w\n]{0,4}\d\.\d+\.\d+(?:\.dev|a0)\d*")
_TRITON_WORDS = words(
    r"torch\.compile", r"inductor|dynamo", r"\btriton\b[^.\n]{0,60}(?:error|fail\w*|crash\w*|import)", "ImportError"
)


def _find_triton(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """A Triton of another release than the one that belongs to the torch named beside it."""
    if evidence.machine.torch.is_available is True and text.find(_FAILS) is None:
        return
    if text.find(_NIGHTLY):
        return
    said, about, fails = text.find(_TRITON_VERSION), text.find(_TRITON_WORDS), text.find(_FAILS)
    if said is None or about is None or fails is None:
        return
    torch = text.find(_TORCH_VERSION)
    version = known(evidence.machine.torch.version) or (torch[1] if torch else None)
    wanted = None if version is None else triton_for(version)
    limit = torch is not None and re.search(r"<\s*v?$", torch[0][: -len(torch[1])].rstrip("0123456789.")) is not None
    own = is_triton_release(said[1]) and "torch" not in said[0].lower()
    if wanted is not None and own and (said[1] != wanted or limit):
        yield Finding(
            id="triton_torch_mismatch",
            confidence=0.7,
            title=f"Triton {said[1]} beside torch {version}, which belongs to Triton {wanted}",
            evidence=(quote(said, "triton"), *((quote(torch, "torch"),) if torch else ())),
        )


# the package whose C++ part was compiled, as pip's resolver complains: "X 1.2 requires torch==2.0.1, but you have ..."
_PIP_REQUIRES = Pattern(
    r"(?i)\b([\w.-]+)\s[\w.+]+\s(?:requires|has requirement|depends on)\storch\s?(?:==|<|~=|>=)[\w.+,<>=!~ ]{1,30}"
    r"(?:,|;|\sbut|\sand)[^\n]{0,20}\b(?:you have|you'll have|installed)"
)
_VISION_LIKE = ("torchvision", "torchaudio", "torchtext")
_PURE = re.compile(r"(?i)^(?:lightning|pytorch-lightning|torchmetrics|fastai|transformers|accelerate|timm|peft|trl)$")


def _find_pip_conflict(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    del evidence
    for said in text.find_all(_PIP_REQUIRES, most=10):
        name = said[1].lower()
        if name in _VISION_LIKE:
            yield Finding(id="torchvision_torch_mismatch", confidence=0.85, evidence=(quote(said, "pip"),))
        elif not _PURE.match(name):
            yield Finding(
                id="extension_torch_abi_mismatch", severity="warning", confidence=0.6, evidence=(quote(said, "pip"),)
            )


_NUMPY_2 = Pattern(r"(?i)\bnumpy\b[^\n\d]{0,40}?\b2\.\d+(?:\.\d+)?\b(?!\s*(?:or|and) (?:older|earlier))")
_FIRST_TORCH_FOR_NUMPY_2 = (2, 3)


def _find_numpy(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """NumPy 2 beside a torch that was built before it, and something that fails."""
    numpy, torch = text.find(_NUMPY_2), text.find(_TORCH_RELEASE)
    version = known(evidence.machine.torch.version) or (torch[1] if torch else None)
    match = re.match(r"(\d+)\.(\d+)", version or "")
    if numpy is None or match is None or (int(match[1]), int(match[2])) >= _FIRST_TORCH_FOR_NUMPY_2:
        return
    fails = text.find(_NUMPY_FAILS)
    if fails is not None:
        yield Finding(id="numpy2_abi", confidence=0.66, evidence=(quote(numpy, "numpy"), quote(fails, "effect")))


_TORCH_RELEASE = Pattern(r"(?i)\b(?:py)?torch\b(?!vision|audio)[^\n\d]{0,12}?v?([12]\.\d{1,2})(?:\.\d+)?")
_NUMPY_FAILS = words(
    r"from_numpy|\.numpy\(\)",
    r"numpy[^.\n]{0,60}(?:fail\w*|error|crash\w*|warning|not work|no longer|n't work|incompatib\w+)",
    r"import\w* torch[^.\n]{0,60}(?:fail\w*|error|crash\w*|warning)",
)

FINDERS = (
    text_finder("numpy2_abi", _find_numpy),
    text_finder("triton_torch_mismatch", _find_triton),
    text_finder("extension_torch_abi_mismatch", _find_pip_conflict),
    *finders(
        Sign(
            id="cpu_only_torch",
            said=words(
                r"(?:install\w*|default\w*|fall\w*|gets?|got|pull\w*|download\w*|resolv\w*|chooses?|picks?|comes?|has|is|"
                r"have|using|use[sd]?|ship\w*)[^.\n]{0,40}[\s\[(\"'`*]cpu\]?[- ]?(?:only)?[- ]"
                r"(?:version|build|wheel|variant|torch|pytorch|package)",
                r"\bcpu[- ]?(?:only)? (?:version|build|variant|wheel) of (?:the )?(?:py)?torch",
                r"(?:py)?torch[^.\n]{0,30}\bcpu[- ]only\b",
                r"(?<![\w.])[12]\.\d{1,2}\.\d\+cpu\b",
                r"\bcpu[- ]?only (?:py)?torch",
                r"\btorch (?:is |was |in )*(?:the |a )?cpu[- ](?:version|build)",
            ),
            also=_WANTS_GPU,
            unless=words(
                r"Is CUDA available: (?:True|Yes)", r"mac ?os", r"torchvision::nms", r"is_available\(\)\W{0,8}True"
            ),
            sure=0.78,
        ),
        Sign(
            id="cpu_only_torch",
            said=words(
                r"cpu ?版本?的? ?(?:py)?torch",
                r"(?:py)?torch[^。\n]{0,12}(?:是|为|成|只有|装)[^。\n]{0,8}cpu ?版",
                r"(?:py)?torch ?[(（]?cpu ?版",
            ),
            unless=words(r"is_available\(\)\W{0,8}True"),
            sure=0.78,
        ),
        Sign(
            id="extension_torch_abi_mismatch",
            # a compiled package of another that no longer loads since torch was replaced
            said=words(r"ImportError: \S*(?:site|dist)-packages/(?!torch(?:vision|audio)?/)\S+\.(?:so|cpython)"),
            also=words(
                r"(?:after|since|when|with)[^.\n]{0,20}(?:upgrad|updat|chang|install|downgrad)\w* (?:\w+ ){0,3}?"
                r"(?:py)?torch\b(?![-_])",
            ),
            unless=words(r"\bGLIBC", "cannot open shared object"),
            sure=0.7,
        ),
        Sign(
            id="libcuda_not_linkable",
            said=words(r"libcuda\.so: cannot open shared", r"libcuda\.so (?:is )?not (?:in )?found"),
            also=words(r"libcuda\.so\.1\b"),
            unless=words(r"libcuda\.so\.1: cannot open", r"libcuda\.so\.1 (?:is )?not found"),
            sure=0.88,
        ),
        Sign(
            id="numpy2_abi",
            said=words(
                r"(?<!satisfied:\s)(?<!Collecting\s)(?<!Using\scached\s)\bnumpy ?< ?2(?:\.0)?(?:\.0)?\b(?!\d|"
                r"[.,;]?[\d<>=!~])",
                r"\bnumpy ?(?:>=?|==)? ?2(?:\.\w+)*[^.\n]{0,40}(?:not compatible|incompatib\w+|break\w*|not supported|"
                r"unsupported|crash\w*|fail\w*|error)",
                r"(?:incompatib\w+|not compatible|break\w*|fail\w*|error\w*|crash\w*) (?:with|under|on|in) numpy ?2",
                r"downgrad\w+ (?:\w+ )?numpy|numpy[^.\n]{0,20}downgrad\w+",
                r"Could not infer dtype of numpy\.",
                r"expected np\.ndarray \(got numpy\.ndarray\)",
                r"numpy\.core\.(?:umath|_multiarray_umath)[^.\n]{0,20}failed to import",
                r"compiled (?:against|for|with) numpy 1",
            ),
            also=_FAILS,
            unless=words(r"Successfully installed"),
            sure=0.82,
        ),
        Sign(
            id="glibc_too_old",
            said=words(
                r"(?:requir\w+|need\w*|want\w*|asks? for|built (?:against|with|for)|depends on|expects?|link\w+ "
                r"against) (?:\w+ "
                r"){0,3}glibc"
                r"[ -_]?(?:version )?(?:>=? ?)?2\.\d+",
                r"glibc[ -_]?(?:version )?(?:is )?(?:2\.\d+ )?(?:is )?too old",
                r"(?:old|older|lower|outdated) (?:version of )?glibc",
                r"(?:\bnot|n't) (?:come with|ship(?: with)?|have|provide|include) [^.\n]{0,30}\bglibc\b",
                r"glibc[^.\n]{0,30}(?:too old|outdated|older than|lower than|not new enough)",
                r"no wheels with a matching platform[^\n]{0,60}manylinux",
                r"only has wheels for the following platforms?[^\n]{0,80}manylinux_2_(?:2[4-9]|3\d)",
                r"manylinux_?2_(?:2[4-9]|3\d)[^.\n]{0,60}(?:not (?:supported|compatible)|incompatib\w+|fail\w*)",
            ),
            sure=0.84,
        ),
        Sign(
            id="python_unsupported_by_wheel",
            said=words(
                r"doesn.t have a source distribution or wheel for the current platform",
                r"only has wheels with the following Python (?:ABI|implementation) tags?",
                r"torch[^\n]{0,40} requires Python ?[<>=!]",
                r"incompatible with the existing python installation",
                r"no (?:\w+ )?(?:wheels?|builds?|binaries|packages?|release) (?:\w+ ){0,4}(?:for|of|with) (?:\w+ ){0,3}"
                r"(?:python ?3\.\d+|cp3\d+|py3\d+)",
                r"python ?3\.\d+(?:\.\d+)? (?:is |are )?(?:not|isn't|no longer|un) ?(?:yet )?supported",
                r"torch\w* (?:\w+ ){0,4}(?:not|n't|no) (?:\w+ ){0,3}(?:for|support\w*|on) python ?3\.\d+",
            ),
            also=words(r"torch\w*"),
            sure=0.8,
        ),
        Sign(
            id="windows_dll_dependency_missing",
            said=words(
                r"\bdlls?\b[^.\n]{0,40}(?:\bnot|n't|missing|fail\w*|can ?not|error)",
                r"(?:missing|not find|cannot find|can't find|error loading|fail\w* to load|problem "
                r"with)[^.\n]{0,40}\bdlls?\b",
            ),
            also=words(r"torch\w*"),
            unless=words(r"flash|xformers|mmcv|bitsandbytes|_ext\b", r"is_available\(\)\W{0,8}True"),
            sure=0.76,
        ),
        Sign(
            id="python_unsupported_by_wheel",
            said=words(r"\b32[- ]?bit (?:\w+ ){0,2}python", r"python[^.\n]{0,24}\b32[- ]?bit", r"32 bit \(Intel\)"),
            also=words(r"torch\w*"),
            sure=0.82,
        ),
        Sign(
            id="library_path_shadows_bundled",
            said=words(r"LD_LIBRARY_PATH"),
            also=words(
                r"(?:without (?:it|that)|(?:if|when|after) (?:i |we |you )?(?:unset\w*|remov\w+|clear\w*|"
                r"drop\w*) (?:it|that))"
                r"[^.\n]{0,40}(?:works?|fine|ok|runs?|gone|goes away|disappear\w*)",
            ),
            unless=words(r"libcuda\.so", "/compat"),
            sure=0.8,
        ),
        Sign(
            id="extension_torch_abi_mismatch",
            said=words(
                r"undefined symbols?\b(?!:| ?[`'\"])",
                r"(?:compiled|built) (?:with|for|against) (?:\w+ )?(?:py)?torch ?(?:==)?\d",
            ),
            also=words(
                r"flash[_-]?att\w+|xformers|mmcv|bitsandbytes|\bapex\b|deepspeed|torch[_-](?:scatter|sparse|cluster)|"
                r"detectron2|fairseq|vllm|pytorch3d|causal_conv1d|mamba_ssm|_ext\b|\w+_cuda\b|\bextensions?\b",
            ),
            unless=words(r"undefined symbol: ", r"\bnccl|cublas|cudnn|nvJitLink|cusparse"),
            sure=0.66,
        ),
        Sign(
            id="cpu_only_torch",
            said=words(r"torch\.version\.cuda\W{0,6}(?:\w+ ){0,2}\W{0,6}None\b"),
            also=_WANTS_GPU,
            unless=words(r"mac ?os", r"\+rocm|\brocm\b"),
            sure=0.84,
        ),
        Sign(
            id="extension_built_for_other_cuda",
            said=words(
                r"version of Cuda that does ?n[o']t match the version used to compile",
                r"unsupported (?:GNU|clang|Microsoft Visual Studio) version!?",
                r"gcc versions later than \d+ are not supported",
                r"unsupported host compiler|host compiler[^.\n]{0,40}not supported",
                r"std_function\.h.{0,80}parameter packs not expanded",
                r"CUDA_HOME environment variable is not set",
                r"(?:No such file or directory|not found)[^\n]{0,30}(?:cuda[\w.-]*/)?bin/nvcc|"
                r"bin/nvcc\W{0,3}:? (?:not found|no such file)",
                r"nvcc (?:is )?(?:version|[\d.]+)[^.\n]{0,60}(?:differ\w*|mismatch\w*|does ?n.t match|but "
                r"(?:py)?torch)",
            ),
            sure=0.8,
        ),
        Sign(
            id="triton_torch_mismatch",
            said=words(
                r"(?:when|with|without|after|if|unless|uninstall\w*|downgrad\w*|upgrad\w*|remov\w*) (?:\w+ ){0,3}"
                r"(?:pytorch-)?triton(?:-windows)?(?: [\d.]+)?(?: is| was)? (?:not )?"
                r"(?:installed|removed|upgraded|downgraded|updated|to [\d.]+)",
            ),
            also=words(r"torch\.compile", "inductor", "dynamo", "ImportError"),
            sure=0.6,
        ),
        Sign(
            id="mixed_cuda_packages",
            said=words(
                r"torch \S+ requires nvidia-[\w-]+ ?==[^\n]{0,40}but you have",
                r"\bcu11\d?\b[^.\n]{0,60}\b(?:and|with|beside|alongside|vs)\b[^.\n]{0,30}\bcu1[23]\d?\b",
                r"\bcu1[23]\d?\b[^.\n]{0,60}\b(?:and|with|beside|alongside|vs)\b[^.\n]{0,30}\bcu11\d?\b",
            ),
            also=_TORCH,
            unless=words(r"is_available\(\)\W{0,8}True", r"whl/cu"),
            sure=0.6,
        ),
    ),
)

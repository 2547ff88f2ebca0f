"""Half precision where there is none: fp16 on a CPU, bf16 on a GPU from before Ampere, as any software says it."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.sentences import together
from gpudoc.doctor.causes.sign import Sign, finders, quote, text_finder, words
from gpudoc.doctor.model import Evidence, Finding, Skip
from gpudoc.doctor.setting import known
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.model import Mention, Text
from gpudoc.knowledge.compatibility import capability_of

_FP16 = words(
    r"\bfp_?16\b",
    r"\bfloat_?16\b",
    r"\bhalf[- ]precision\b|\bhalf tensors?\b|['\"`]half['\"`]",
    r"\bHalfTensor\b|\.half\(\)|--half\b",
    r"precision\W{1,4}16\b|\b16-(?:mixed|true)\b",
    r"\bamp\b",
    "半精度",
)
_CPU = words(r"\bcpus?\b")
_CANNOT = words(
    r"(?:\bnot|n't|\bonly|\bcannot|\bnever|\bno) (?:\w+ ){0,4}(?:support\w*|implement\w*|work\w*|run\w*|compatible|"
    r"available|possible|allowed)",
    r"can(?:'?t|not) (?:do|use|handle|have)\b",
    r"\bunsupported\b|\bincompatible\b|not able to",
    "不支持|无法|不能",
)
# a program that says so and goes on in fp32 has lost nothing
_GOES_ON = words(r"\binstead\b", r"\bfall\w* back\b", r"\bbf16\b|\bbfloat ?16\b")
_HALF_ERRORS = words(
    # the name of the kernel is often cut off or retyped
    r"\w\W{0,3} not (?:yet )?implemented for \W{0,3}(?:c10::)?Half\b",
    r"not (?:supported|implemented) (?:on|for) CPU\w* (?:for|with) \W{0,2}Half\b",
    r"not (?:supported|implemented) for (?:type |tensor type )?\W{0,2}(?:torch\.)?HalfTensor",
    r"Requested (?:int8_)?float16 compute type, but the target device",
    r"asked for (?:native |apex )?AMP on CPU",
    r"\bAMP\b[^.\n]{0,24}(?:only (?:available|supported) on (?:the )?GPU|not supported on (?:the )?CPU)",
    r"--fp16\W[^\n]{0,120}can only be used on CUDA devices",
    r"half=True\W{0,3} (?:is )?(?:not compatible with CPU|only compatible with GPU)",
)
_MIXED_TYPES = words(
    r"expected scalar type (?:Float|Half) but found (?:Float|Half)",
    r"got Half and Float|Float and Half",
    r"Input type \((?:struct )?(?:c10::|torch\.)?Half(?:Tensor)?\) and (?:bias|weight) type \((?:torch\.)?float",
    r"Input type \((?:torch\.)?float(?:Tensor)?\) and (?:bias|weight) type \((?:struct )?(?:c10::|torch\.)?Half",
)
_RUNS_ON_CPU = words(
    r"\b(?:on|use|uses|using|with|via|to) (?:the |a |my |only )?cpu\b(?! (?:memory|ram|offload|cores?|usage))",
    r"(?:device|map_location|accelerator)\W{1,4}(?:torch\.device\W{1,3})?cpu\b",
    r"--cpu\b|--device[= ]cpu\b",
)


def _find_half_on_cpu(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """Somebody says that fp16 does not go on the CPU, in a sentence of their own or a program's."""
    del evidence
    said = together(text, _FP16, _CPU, _CANNOT, without=_GOES_ON)
    if said is not None and text.find(words(r"using FP32 instead")) is None:
        yield Finding(id="half_on_cpu", confidence=0.74, evidence=(quote(said, "precision"),))


_BF16 = words(r"\bbf_?16\b", r"\bbfloat_?16\b")
_DEVICE = words(
    r"\b(?:my|our|this|the|these|your|that|a) (?:\w+ ){0,2}?(?:gpus?|cards?|device|hardware|machine|graphics card)\b",
    r"\bgpus?\b",
    "显卡",
)
# another kind of processor, a gap in some library, or the reason why somebody uses fp16: no complaint of the card's age
_OTHER_LACK = words(
    r"\b(?:since|because|therefore|hence)\b|\bso (?:i|we) (?:use|used|am|are|have|had|switched|chose)\b|因为|所以",
    r"\b(?:cpu|mps|npu|tpu|xpu|mac\w*|apple|ascend|mlu|hpu)\b",
    r"not implemented for",
    r"\bnumpy\b",
    r"\bonnx\w*\b",
)
_NAMED_CARD = Pattern(
    r"(?i)\b(?:tesla[ -]?)?(?:V100\w*|P100\w*|P40|P4|T4|K80|M40|M60)\b|\b(?:RTX|GTX|quadro|titan)[ -]?(?:RTX[ -]?)?"
    r"\w{0,6}(?:[ -]?(?:ti|super|ada|blackwell))?|\b(?:10[678]0|[2-5]0[5-9]0)[ -]?(?:ti|super)?\b|\bvolta\b|"
    r"\bturing\b|\bpascal\b"
)
_GENERATIONS = {"volta": (7, 0), "turing": (7, 5), "pascal": (6, 0)}
# bf16 in the units of the card begins with Ampere, capability 8.0 (CUDA C++ Programming Guide, table of arithmetic)
_FIRST = (8, 0)
_SUFFERS = words(
    r"\b(?:very|so|too|extremely|really|much) slow\w*|\bslower\b|takes? (?:forever|too long)|lasts? forever",
    r"\bnans?\b|\bartifacts?\b|\bgarbage\b|\bgibberish\b|\bnoise\b",
    r"\bfails?\b|\bfailed\b|\berror\b|\bcrash\w*",
)
_TURNED_ON = words(
    r"\bbf16\W{1,5}(?:true|enabled\W{1,4}true)", r"--bf16\b", r"mixed_precision\W{1,5}bf16", r"bf16-(?:mixed|true)\b"
)


def _find_bf16(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """A card from before Ampere and bf16: said of it in one sentence, or switched on for it where something fails."""
    if text.find(_BF16) is None:
        return
    old, new = _cards(text, evidence)
    lacks = together(text, _BF16, _CANNOT, without=_OTHER_LACK)
    if lacks is not None and (old is not None or (not new and together(text, _BF16, _DEVICE, _CANNOT) is not None)):
        seen = (quote(lacks, "precision"), *((quote(old, "GPU"),) if old else ()))
        yield Finding(id="bf16_unsupported_gpu", confidence=0.82 if old else 0.7, evidence=seen)
    elif old is not None and not new and (on := text.find(_TURNED_ON)) is not None and text.find(_SUFFERS) is not None:
        seen = (quote(on, "precision"), quote(old, "GPU"))
        yield Finding(id="bf16_unsupported_gpu", confidence=0.42, severity="warning", evidence=seen)


def _cards(text: Text, evidence: Evidence) -> tuple[Mention | None, bool]:
    """The first card from before Ampere that is named, and whether a newer one is named too."""
    old: Mention | None = None
    new = False
    for gpu in known(evidence.machine.gpus) or ():
        capability = known(gpu.capability) or capability_of(known(gpu.name) or "")
        new = new or (capability is not None and capability >= _FIRST)
    for card in text.find_all(_NAMED_CARD, most=40):
        capability = _capability(card[0])
        if capability is None:
            continue
        new = new or capability >= _FIRST
        old = old or (card if capability < _FIRST else None)
    return old, new


def _capability(name: str) -> tuple[int, int] | None:
    """Of a name as people shorten it: '2080ti' is a GeForce, 'RTX 5000' without more is a Quadro."""
    known_as = (name, f"GeForce GTX {name}", f"GeForce RTX {name}", f"Quadro {name}")
    return _GENERATIONS.get(name.lower()) or next((c for n in known_as if (c := capability_of(n)) is not None), None)


FINDERS = (
    text_finder("half_on_cpu", _find_half_on_cpu),
    text_finder("bf16_unsupported_gpu", _find_bf16),
    *finders(
        Sign(
            id="half_on_cpu",
            said=_HALF_ERRORS,
            unless=words(r"\w*cuda\w*\W{0,3} not implemented for \W{0,3}Half", r"torch\.cuda\.HalfTensor"),
            sure=0.8,
        ),
        Sign(id="half_on_cpu", said=_MIXED_TYPES, also=_RUNS_ON_CPU, sure=0.6),
        Sign(
            id="bf16_unsupported_gpu",
            said=words(
                r"Type bf16 is not supported",
                r"\.bf16\w*' requires|cvt\S* with \.bf16|Feature '\S*bf16\S*' requires \.target sm_[89]\d",
                r"bfloat16[^.\n]{0,40}(?:needs?|requires?|only (?:on|with|for))[^.\n]{0,24}(?:ampere|a100|sm_?80|8\.0)",
                r"is_bf16_supported\(\)\W{0,8}(?:is |returns? |gives? )?False",
            ),
            unless=words(r"Is CUDA available: False"),
            sure=0.85,
        ),
    ),
)

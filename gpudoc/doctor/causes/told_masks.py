"""Which GPUs a program may see, and what comes of it: a mask that names none or comes too late, an index too far.

The reader of facts takes a mask only from an environment; here it stands in code, in a command, or is told.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.sentences import together
from gpudoc.doctor.causes.sign import UNAVAILABLE, Sign, finders, quote, text_finder, words
from gpudoc.doctor.model import Evidence, Finding, Skip
from gpudoc.doctor.setting import known
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.model import Text

_MASK = words(r"(?:CUDA|HIP|ROCR)_VISIBLE_DEVICES?")
# the program itself sets it, after its imports began: an assignment, a framework's setting, or somebody's words for it
_SET_INSIDE = words(
    r"(?:environ\w*|\bos|putenv|setenv)\W{1,5}(?:CUDA|HIP)_VISIBLE_DEVICES",
    r"env_set:|load_dotenv|%env (?:CUDA|HIP)_VISIBLE_DEVICES",
    r"(?<![-\w])(?:gpu_?(?:ids?|devices?|index|num|list)|device_?ids?)\W{1,4}\[?\d",
    r"(?:set|setting|specify\w*|assign\w*|define|defining|chang\w+|add\w*|put|putting) (?:the )?(?:\w+ ){0,2}\W{0,3}"
    r"CUDA_VISIBLE_DEVICES[^\n]{0,20} (?:in|inside|within|from) (?:the |my |a |our )?(?:\w+ ){0,2}"
    r"(?:code|scripts?|program|python|notebook|jupyter|main|function|\S+\.py)\b",
)
_IGNORED = words(
    r"\b(?:no|without|any) effect\b|\bignor\w*|\bineffective\b",
    r"\b(?:still|always|consistently|goes on|continues?|keeps?) (?:to )?(?:us|run|see|pick|select|choos|land|go|detect|"
    r"show|find|load|train|allocat|tak|return|report|occup)\w*",
    r"\b(?:does|do|did)(?:n't| not) (?:work|help|take|change|matter|apply|affect|seem)",
    r"\b(?:does|do|did|changes?) nothing\b|\bnothing (?:happens|changes)\b",
    r"\bwhy (?:can|could|does|do|did|is)(?:n't| ?not|'t)\b|\b(?:can|could)(?:n't| ?not|'t) (?:\w+ )?(?:set|choose|"
    r"select|specify|"
    r"change|use)\b|\binvalid\b",
    r"\bnot us(?:e|ing) the (?:\w+ )?gpus? (?:that |which )?(?:\w+ )?(?:specified|given|set|chosen|selected)",
    r"\bruns? (?:on |in )?all (?:of )?(?:the )?(?:\w+ )?gpus\b",
    r"\bnot (?:work\w*|captured|respected|taken|picked|recogni\w+|applied|honou?red)",
    r"\ball (?:of )?(?:the )?(?:\w+ )?gpus (?:are |were )?(?:still )?(?:detected|used|visible|found|seen|occupied)",
    "不起作用|无效|没用|没有用|不生效|失效|没有效果|没效果",
)
_BEFORE_COMMAND = words(r"(?<![\w.])(?:CUDA|HIP)_VISIBLE_DEVICES=\S+ +(?:\S+/)?\w[\w.-]+")
_SWAPPED = words(
    r"\b(?:before|after|above|ahead of) (?:the )?(?:\w+ )?(?:import\w*|torch\b|cuda\b)",
    r"import\w* (?:\w+ )?(?:first|later)",
)


def _find_too_late(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """A mask that the program sets and that changes nothing; in front of the command it does."""
    del evidence
    inside = text.find(_SET_INSIDE)
    if inside is None or text.find(_NONE_LEFT) is not None:
        return
    ignored = together(text, _MASK, _IGNORED, around=1)
    if ignored is not None:
        other = text.find(_BEFORE_COMMAND) or text.find(_SWAPPED)
        seen = (quote(inside, "set in the program"), quote(ignored, "without effect"))
        yield Finding(
            id="visible_devices_set_too_late", confidence=0.86 if other else 0.72, evidence=tuple(dict.fromkeys(seen))
        )


_NONE_LEFT = words(
    r"No CUDA GPUs are available",
    r"no CUDA-capable device is detected",
    r"No HIP GPUs are available",
    r"CUDA_ERROR_NO_DEVICE|cudaErrorNoDevice",
    # TensorFlow prints this only after cuInit found no device
    r"kernel version seems to match DSO",
)
_SEES_NONE = words(
    UNAVAILABLE,
    r"CUDA_? ?AVAILABLE\W{1,6}False",
    r"\bno (?:cuda )?gpus? (?:was |were |is |are )?(?:found|detected|available|visible)",
    r"\b(?:fails?|failed|unable) to (?:detect|find|see) (?:the |a |any )?gpus?",
    r"\bcuda (?:is )?(?:not available|unavailable)",
    r"\b(?:no|0) gpus?\b[^.\n]{0,16}\bfound\b",
)
# the first index counts: CUDA stops at the first that names no device. "$0" is the shell's own name.
_ASSIGNED = Pattern(
    r"\b(?:CUDA|HIP|ROCR)_VISIBLE_DEVICES['\"]?\s*\]?\s*(?:[=:,]|\bto\b|\bis\b)\s*['\"]?\s*"
    r"(-1\b|\$0\b|\d+(?=\s|['\",;)\]}`]|\.(?!\d)|$)|['\"]{2})"
)
_DRIVER_TROUBLE = words(
    r"couldn.t communicate|Driver Not Loaded|Found no NVIDIA driver",
    r"nvidia-smi\W[^\n]{0,40}(?:not found|fail|no such)",
    r"\+cpu\b|not compiled with CUDA",
    r"\bError 80[0-9]\b",
)
_GPU_OPTION = Pattern(
    r"(?i)(?:--(?:gpus?|gpu[_-]?ids?|device[_-]?ids?|cuda[_-]?device)[= ]+|"
    r"\b(?:CUDA_ID|GPU_?IDS?|GPU_?NUM|CUDA_?DEVICES?|DEVICE_?IDS?)=)['\"\[]?([1-9]\d?)\b"
)


def _find_masked(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """A mask in code or command whose first entry names no device, and nothing is left."""
    if evidence.source == "machine" or text.find(_DRIVER_TROUBLE) is not None:
        return
    none = text.find(_NONE_LEFT)
    effect = none or text.find(_SEES_NONE)
    if effect is None:
        return
    count = len(known(evidence.machine.gpus) or ())
    for mask in text.find_all(_ASSIGNED, most=20):
        first = mask[1]
        if first.isdigit() and int(first) < max(count, 1):
            continue
        seen = (quote(mask, "mask"), quote(effect, "effect"))
        yield Finding(id="visible_devices_hides_gpu", confidence=0.78 if none else 0.68, evidence=seen)
        return
    option = text.find(_GPU_OPTION)
    # programs turn this option into the mask; one that counts devices would say "invalid device ordinal"
    if option is not None and none is not None and int(option[1]) >= max(count, 1):
        seen = (quote(option, "option"), quote(none, "effect"))
        yield Finding(id="visible_devices_hides_gpu", confidence=0.56, evidence=seen)


_ONE_GPU = words(
    r"\b(?:only )?(?:have|has|got|with|having) (?:only |just )?(?:one|1|a single) (?:\w+ )?gpu\b(?: only)?",
    r"\b(?:single|one|1)[- ]gpu (?:machine|system|computer|server|laptop)",
    "只有一[张块个]",
)
_OTHER_INDEX = words(
    r"\b(?:gpus?|devices?|gpu_?ids?|cuda)\b[^.\n]{0,40}\b(?:is|=|to|:|are) ?['\"\[]?[1-9]\b",
    r"\bcuda:[1-9]\b",
)
_FAILS = words(r"\berror\b|\bfail\w*|\bbug\b|(?:n't|not|cannot) (?:work|run|start)\w*|Error\b")


def _find_index_too_far(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """One GPU, and a setting that names another."""
    del evidence
    one = text.find(_ONE_GPU)
    index = together(text, _OTHER_INDEX, _ONE_GPU, around=1)
    if one is not None and index is not None and text.find(_FAILS) is not None and text.find(_NONE_LEFT) is None:
        seen = (quote(index, "setting"), quote(one, "GPUs"))
        yield Finding(id="invalid_device_ordinal", confidence=0.6, evidence=tuple(dict.fromkeys(seen)))


FINDERS = (
    text_finder("invalid_device_ordinal", _find_index_too_far),
    text_finder("visible_devices_set_too_late", _find_too_late),
    text_finder("visible_devices_hides_gpu", _find_masked),
    *finders(
        Sign(
            id="invalid_device_ordinal",
            said=words(
                r"invalid device ordin\w+|hipErrorInvalidDevice\b",
                r"No slot '?\d+'? specified on host",
                r"Invalid CUDAPlace\(\d+\)",
                r"Could not satisfy explicit device specification [^\n]{0,60}GPU:\d",
                r"(?:cuda|gpu)[: ]?\d (?:does not|doesn't|does'nt) exist",
                r"gpu[_ ]?(?:id|index)\W{0,4}\d+\W{0,3} (?:is )?(?:out of range|invalid|not (?:found|available))",
                r"(?:requested|asked for|specified|requires?) \d+ gpus?,? (?:but|while|"
                r"and) (?:only )?(?:there (?:is|are) )?"
                r"(?:only )?(?:\d+|one|none)\b[^.\n]{0,30}(?:available|found|visible|detected)",
                r"local_rank\W[^\n]{0,40}(?:>=|exceeds|greater than)[^\n]{0,30}(?:device_count|gpus?\b)",
                r"nproc_per_node\W[^\n]{0,60}(?:device_count|available gpus?)",
            ),
            sure=0.82,
        ),
    ),
)

"""What people compare when a run is slow: alone or beside others, GPU or CPU, one shape or many, old or new torch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpudoc.doctor.causes.lexicon import LOW_USE
from gpudoc.doctor.causes.memory import RAN_OUT
from gpudoc.doctor.causes.sentences import together
from gpudoc.doctor.causes.sign import about_training, quote, text_finder, words
from gpudoc.doctor.model import Evidence, Finding, Skip, observe
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.model import Mention, Text

# that something takes longer than it should, as people say it
DRAGS = words(
    r"\bslow(?:s|ed|er|ly|ing|down|ness)?\b",
    r"\b(?:lag(?:s|ging|gy)?|sluggish|crawl\w*|block(?:s|ing)|halv(?:es|ed)|dominat\w*|expensive|costly|"
    r"days to train)\b",
    r"\b\d+(?:\.\d+)? ?(?:min\w*|hours?|days?) (?:per|each|for (?:one|an?|each)) (?:epoch|batch|step|iteration)\b|"
    r"\bunusable\b",
    r"\blatency\b[^.\n]{0,30}\b(?:spikes?|high\w*|increas\w*)\b",
    r"\b(?:most|\d\d(?:\.\d+)? ?%|half|a third|a quarter) of (?:the |my |our |all |each )?(?:\w+ )?time\b|"
    r"\btime[- ]consuming\b",
    r"\b(?:bottleneck\w*|overhead|inefficien\w*|super-?slow|performance (?:issue|problem|penalty|hit))\b",
    r"\b(?:tak|took|spen|need|cost|wast|consum)\w* (?:\w+ ){0,5}(?:long\w*|time|minutes|hours|most|twice|double|"
    r"eternity|forever|ages)\b",
    r"\b(?:takes?|took|spends?|needs?) (?:\w+ ){0,3}\d+(?:\.\d+)? ?(?:s|sec\w*|min\w*|h|hours?)\b",
    r"\b(?:too|very|so|extremely) long\b|\blonger\b|\btimes? (?:\w+ ){0,3}(?:increas|grow|explod)\w*",
    r"\b(?:speed|throughput|performance)\b[^.\n]{0,30}\b(?:drop|decreas|degrad|fall|low|suffer)\w*",
    r"\b(?:decreas|reduc|hurt|degrad|harm)\w* (?:\w+ ){0,3}(?:speed|throughput|performance)\b",
    r"\bmore than (?:twice|double)\b|\b(?:twice|three times|\d+x|\d+ times) (?:as long|the time|longer)\b",
    r"慢|耗时|变长|卡顿|时间长",
)
_FAILED = words(
    r"\bTraceback\b", r"\b\w+Error:", r"\bcrash\w*|\bhangs?\b|\bhung\b|\bst[uo]ck\b|\bkilled\b|\bdead ?lock"
)


_LEARNS = words(
    r"\b(?:tensorflow|keras|theano|lasagne|mxnet|jax|flax|chainer|paddle\w*|cntk|mnist|cifar\w*|episodes?|"
    r"reinforcement learning|q-learning|minibatch\w*|models?|iterations?|loras?)\b"
)


def about_learning(text: Text) -> bool:
    """Whether the text speaks of training, by any library's name for it."""
    return about_training(text) or text.find(_LEARNS) is not None


def runs_badly(text: Text) -> bool:
    """Whether the text is about training, and nothing in it fails: what is wrong is how long it takes."""
    return about_learning(text) and text.find(RAN_OUT) is None and text.find(_FAILED) is None


def slow_finding(cause: str, sure: float, *seen: Mention | None) -> Finding:
    """A warning about the pace, with the places it was read from."""
    quoted = (quote(mention, "pace") for mention in seen if mention is not None)
    return Finding(id=cause, confidence=sure, severity="warning", evidence=tuple(dict.fromkeys(quoted)))


_OTHERS = words(
    r"\b(?:other|another|others|someone|somebody|else's?|several|multiple|two|both|second|more than one)\b[^.\n]{0,24}"
    r"\b(?:programs?|process(?:es)?|jobs?|users?|people|scripts?|tasks?|experiments?|trainings?|instances?|runs?|"
    r"notebooks?|students?|colleagues?)\b",
    r"\b(?:programs?|process(?:es)?|jobs?|scripts?|tasks?|experiments?|trainings?|instances?|codes?)\b[^.\n]{0,30}"
    r"\b(?:each other|together|in parallel|simultaneously|at the same time|concurrently|at once)\b",
    r"\b(?:two|2|three|several) (?:of )?\w+\.py\b",
    r"其他(?:人|程序|任务|进程)|别人|多个(?:程序|任务|进程)|两个(?:程序|任务|进程)",
)
_ON_ONE_CARD = words(
    r"\b(?:same|one|this|a single|shared?|sharing) (?:\w+ )?(?:gpus?|(?:video |graphics )?cards?)\b",
    r"\bon (?:the )?gpu ?:?\d\b|\bshar(?:e|es|ed|ing)\b[^.\n]{0,16}\bgpus?\b",
    r"同一(?:张|块|个)(?:卡|显卡| ?GPU)",
)
_AFFECTS = words(
    r"\b(?:influenc|affect|slow(?:s|ed)? (?:down )?(?:the |my |all )?|disturb|impact|"
    r"share)\w*[^.\n]{0,30}\bother (?:\w+ ){0,2}"
    r"(?:codes?|programs?|scripts?|process(?:es)?|trainings?|jobs?|experiments?|runs?)\b",
    r"\baccidental (?:usage|use|sharing) of (?:the )?gpus?\b",
    r"\bgpu (?:contention|is (?:shared|clogged|occupied))\b|\btime[- ]?slic\w*",
)
_RUN_AGAIN = words(
    r"\b(?:run|start|launch)\w* (?:\w+ ){0,3}(?:several|multiple|many|more than one|\d) (?:times|copies|instances)\b"
)
_MULTIPLIES = words(r"\btimes?\b[^.\n]{0,24}\b(?:multipl\w*|doubl\w*|longer|increas\w*)\b")
_SEVERAL_CARDS = words(
    r"\bdistributed\b|DataParallel|\bddp\b|multi-?gpus?\b|\btorchrun\b|\bnccl\b|\bworkers?\b|\bvram\b"
)


def _find_shared(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """It is fast alone, and slow as soon as something else computes on the same card."""
    del evidence
    others = together(text, _OTHERS, _ON_ONE_CARD, DRAGS, around=1)
    affects = together(text, _AFFECTS, DRAGS, around=2)
    again = together(text, _RUN_AGAIN, _MULTIPLIES)
    others = others or again
    if (others or affects) and runs_badly(text) and not text.find(_SEVERAL_CARDS):
        yield slow_finding("gpu_shared", 0.69, others, affects)


_BEATEN_BY_CPU = words(
    r"\bslower\b[^.\n]{0,24}\b(?:on|with|using|in) (?:the |my |a )?gpus?\b(?! ?\d)",
    r"\bgpus?\b[^.\n]{0,40}\b(?:slow\w*|longer|worse)\b[^.\n]{0,24}\b(?:than|as)\b[^.\n]{0,24}\bcpus?\b",
    r"\b(?:fast\w*|quick\w*|better)\b[^.\n]{0,24}\bcpus?\b[^.\n]{0,24}\bthan\b[^.\n]{0,24}\bgpus?\b",
    r"\bcpus?\b[^.\n]{0,24}\b(?:is|was|are|runs?) (?:\w+ ){0,2}(?:faster|quicker)\b",
    r"\b(?:no|little|hardly any) (?:\w+ ){0,2}(?:speed-?up|difference|gain|"
    r"benefit)\b[^.\n]{0,40}\bgpus?\b[^.\n]{0,30}\bcpus?\b",
    r"\bgpu MUCH slower\b|\bGPU ?比 ?CPU ?(?:还)?慢",
)
_BOTH_DEVICES = words(r"\bcpus?\b[\s\S]{0,600}\bgpus?\b|\bgpus?\b[\s\S]{0,600}\bcpus?\b|\bslower on (?:the |my )?gpu\b")
_TOO_SMALL = words(
    r"\b(?:small|tiny|little|simple|toy)\b",
    r"\bbatch[_ ]?size\W{1,4}(?:\d|1\d|2\d|32)\b",
    r"\b(?:reinforcement|dqn|q-learning|ppo|policy|gym|lstm|gru|rnn|mlp|tabular)\b",
    r"\bDense\(\s*\d{1,2}\b|\bLinear\(\s*\d{1,3}\s*,\s*\d{1,3}\s*\)|fully_connected\(\w+, ?\d{1,3}\b",
    r"\b(?:rand|randn|zeros|ones)\(\[?\(?\s*\d{1,3}\s*[,)\]]",
)
_LOADING = words(r"data ?-?_?loader|num_workers|\bdata loading\b|ImageDataGenerator|augment\w*")


def _find_small_work(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """The CPU alone is faster than with the GPU: each piece of work is too small to be worth sending there."""
    if not runs_badly(text) or evidence.machine.torch.is_available is False or text.find(_LOADING):
        return
    beaten = text.find(_BEATEN_BY_CPU)
    if beaten and text.find(_BOTH_DEVICES):
        small = text.find(_TOO_SMALL)
        yield slow_finding("launch_bound", 0.72 if small else 0.68, beaten, small)


_ACTS = words(
    r"\breinforcement\b|\brl\w*\b|\bgym\w*\b|stable-baselines|\bopenai\b|\b(?:dqn|ddpg|ppo\d?|a2c|a3c|sac|td3|qmix|"
    r"mujoco)\b|"
    r"\bepisodes?\b|"
    r"\bself-?play\b|\benv(?:ironment)?\.step\b"
)
_HARDLY_USED = words(
    r"\bgpus?\b[^.\n]{0,40}\b(?:only|just|about|around|from|is|at|near)\b[^.\n]{0,16}\b(?:[0-4]?\d) ?%",
    r"\b(?:only|just|about|around) (?:\w+ ){0,3}[0-4]?\d ?%[^.\n]{0,40}\bgpu",
)
_OTHERWISE_BUSY = words(r"data ?-?_?loaders?\b|\b\w+_NUM_THREADS\b|\bthreads\b")


def _find_acting(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """An agent that acts step by step: a small network is called for one observation at a time."""
    del evidence
    acts, idle = text.find(_ACTS), text.find(LOW_USE) or text.find(_HARDLY_USED)
    fails = text.find(RAN_OUT) or text.find(_FAILED)
    if acts and idle and not fails and not text.find(_OTHERWISE_BUSY):
        # what the device waits for is the agent's next observation, not a loader
        yield replace(slow_finding("launch_bound", 0.64, idle, acts), explains=("dataloader_bottleneck",))


_LAUNCHES = words(
    r"\b\d[\d,.]*k? ?(?:\w+ )?kernels?\b[^\n]{0,40}\b\d[\d,.]*k? ?(?:\w+ )?launch\w*",
    r"\bkernel launch(?:es|ing)?\b[^.\n]{0,40}\b(?:overhead|bound|time|latency|bottleneck|dominat\w*|\d+ ?%)",
    r"\blaunch[- ](?:bound|overhead|latency)\b",
    r"\b(?:cpu|host)[- ]overhead\b",
    r"\b(?:one|1|single|a) (?:cpu )?(?:core|cpu|thread)\b[^.\n]{0,30}\b(?:100|"
    r"9\d) ?%[^.\n]{0,80}\bgpus?\b[^.\n]{0,30}\b(?:barely|"
    r"hardly|idle|low|not)\b",
)
_BUSY = Pattern(r"(?i)\bgpu (?:busy|active|kernel) time\W{1,6}(\d+(?:\.\d+)?) ?ms")
_WHOLE = Pattern(
    r"(?i)(?:eager|step|iteration|frame|total|wall)(?: time)?\W{1,6}(\d+(?:\.\d+)?) ?ms(?:/(?:step|frame|it\w*|batch))?"
)
_IDLE_SHARE = 0.5


def _find_launching(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """The host sends kernel after kernel, and the device computes for less than half of the step."""
    del evidence
    said = text.find(_LAUNCHES)
    if said and about_training(text) and text.find(DRAGS):
        yield slow_finding("launch_bound", 0.66, said)
    busy, whole = text.find(_BUSY), text.find(_WHOLE)
    if busy and whole and 0 < float(busy[1]) < _IDLE_SHARE * float(whole[1]):
        value = f"{busy[1]} ms of {whole[1]} ms"
        seen = (observe("device busy", value, busy.line.origin),)
        yield Finding(id="launch_bound", confidence=0.7, severity="warning", evidence=seen)


_OF_SHAPES = r"(?:input |image |batch |audio |sequence |tensor |spatial )?(?:size|shape|length|resolution|dimension)s?"
_NEW_SHAPE = words(
    rf"\b(?:each|every|new|unseen|first time)\b[^.\n]{{0,40}}\b(?:new |different |unseen )?{_OF_SHAPES}\b",
    rf"\b(?:different|various|varying|variable|arbitrary|changing|random|dynamic|"
    rf"various)\b[^.\n]{{0,24}}\b{_OF_SHAPES}\b",
    rf"\b{_OF_SHAPES}\b[^.\n]{{0,40}}\b(?:first time|var(?:y|ies)|differs?|changes?)\b",
    r"尺寸不(?:同|一)|不同(?:尺寸|大小|分辨率)",
)
_AT_FIRST = words(
    r"\bfirst (?:few|several|\d+|one|two|five|ten|time)?\b[^.\n]{0,60}\bslow\w*",
    r"\bslow\w*\b[^.\n]{0,80}\b(?:first time|at first|new (?:\w+ )?(?:size|shape))",
    r"\bextra work for each\b|\bfixed (?:size|shape)\b[^.\n]{0,30}\b(?:fast\w*|quick\w*)",
    r"\bfirst epoch\b[^.\n]{0,40}\b(?:slow\w*|\d+ (?:hours|min\w*))",
)
_SEARCHES = words(
    r"\bcudnn\.enabled\b|\bEXHAUSTIVE\b|TF_CUDNN_USE_AUTOTUNE|MXNET_CUDNN_AUTOTUNE\w*|CUDNN_FIND\b|MIOPEN_FIND\w*|"
    r"cudnn_conv_algo_search",
    r"\b(?:backends?|backedns|cudnn)[._ ](?:\w+[._ ])?benchmark\b",
    r"\bcudnn\b[^.\n]{0,40}\b(?:auto-?tun\w*|algorithms?|heuristic\w*|benchmark\w*)",
    r"\bbuilds? (?:a |an )?(?:\w+ )?plan\b[^.\n]{0,30}\bshape",
)
_CONVOLVES = words(r"\bconv\w*|resnet|\bcnn\b|\bfcn\b|unet|detect\w*|\bimages?\b|\baudio\b|speech|\bcudnn\b|retina\w*")
_COMPILED = words(r"torch\.compile|\binductor\b|\bdynamo\b|\bjit\b|\bxla\b|tf\.function|onnx|tensorrt|recompil\w*")


def _find_new_shapes(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """What is slow is the first time with each shape: the convolutions are tuned again for every new one."""
    del evidence
    shapes = text.find(_NEW_SHAPE)
    searches = text.find(_SEARCHES)
    slow = text.find(DRAGS) or text.find(words(r"\bfaster\b|\bdominat\w*|\bpre-?heat\w*"))
    if slow is None or text.find(RAN_OUT) or text.find(words(r"Traceback \(")):
        return
    at_first = text.find(_AT_FIRST)
    if searches and (shapes or at_first):
        yield slow_finding("cudnn_benchmark_variable_shapes", 0.84, searches, shapes or at_first)
    elif shapes and at_first and text.find(_CONVOLVES) and not text.find(_COMPILED):
        yield slow_finding("cudnn_benchmark_variable_shapes", 0.7, shapes, at_first)


_TORCH = Pattern(r"(?i)\b(?:py)?torch\b[^\n]{0,12}?(\d)\.(\d{1,2})(?:\.\d+)?")
_AMPERE = words(
    r"\b(?:A100|A800|A6000|A5000|A4000|A40|A30|A10G?|L40S?|H100|H800|RTX ?30[5-9]0|RTX ?40[5-9]0|30[5-9]0|40[5-9]0|"
    r"ampere)\b"
)
_SLOWER_NOW = words(
    r"\b(?:twice|double|longer|slower|slow ?down|drops?|decreas\w*|regression|half the speed|\d+(?:\.\d+)? ?x)\b"
)
_SINGLE = words(r"\b(?:fp32|float32|single precision|full precision|32[- ]bit)\b")
_OTHER_WIDTH = words(r"\b(?:fp16|bf16|bfloat16|amp|autocast|half|mixed precision|8-?bit|4-?bit)\b")
_SWITCHED_OFF = (1, 12)


_OLDER_CARD = words(
    r"\b(?:V100|P100|2080\w*|1080\w*|Titan ?\w*|T4|M60)\b",
)
_NO_BETTER = words(
    r"\b(?:not|n't|no|hardly|barely|only (?:a bit|slightly|\d+ ?%)|same|similar|slower|as (?:slow|fast) as)\b"
)


def _find_no_better(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """In float32 a newer card is no faster than an older one: its tensor cores have nothing to do."""
    del evidence
    if not runs_badly(text) or text.find(_OTHER_WIDTH) or text.find(_LOADING):
        return
    said = together(text, _AMPERE, _OLDER_CARD, _NO_BETTER, words(r"\bfast\w*|\bspeed\b|\bslow\w*|\btime\b"))
    if said:
        yield slow_finding("tf32_off", 0.58 if text.find(_SINGLE) else 0.46, said)


def _find_switched_off(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """Slower since torch 1.12, which switched TF32 off for matrix products, than with an older one."""
    del evidence
    named = {(int(m[1]), int(m[2])): m for m in text.find_all(_TORCH, most=40)}
    old = [v for v in named if (1, 7) <= v < _SWITCHED_OFF]
    new = [v for v in named if v >= _SWITCHED_OFF]
    if not old or not new or not about_training(text) or text.find(_OTHER_WIDTH):
        return
    slower = together(text, _SLOWER_NOW, words(r"torch|\bversion"), around=1)
    if slower and re.search(r"(?i)it/s|\bhours?\b|\bmin(?:utes)?\b|\bsec\w*|\bspeed|\btime\b|epoch", text.flat):
        sure = 0.66 if text.find(_AMPERE) or text.find(_SINGLE) else 0.52
        yield slow_finding("tf32_off", sure, slower, named[min(new)])


_FEWER = r"(?:lower|decreas\w*|drop\w*|fall\w*|fell|reduc\w*|went down|goes down|cooler|less)"
_IDLER = words(
    rf"\b(?:gpu |card )?(?:usage|utili[sz]ation|load|power|watt\w*|temperature)\b[^.\n]{{0,30}}\b{_FEWER}\b",
    rf"\b{_FEWER}\b[^.\n]{{0,16}}\b(?:gpu |card )?(?:usage|utili[sz]ation|load|power|wattage|temperature)\b",
)
_STEPS_LONGER = words(
    r"\b(?:iterations?|steps?|it/s|s/it|epochs?|training|speed)\b[^.\n]{0,50}\b(?:longer|slow\w*|increas\w*|"
    r"degrad\w*|drop\w*)\b",
    r"\b(?:longer|slow\w*|increas\w*|degrad\w*)\b[^.\n]{0,24}\b(?:iterations?|steps?|speed)\b",
)
_WINDOWS = words(r"\bwindows\b(?! of\b)|\bwin ?1[01]\b|\bwsl2?\b|task manager|[A-Z]:\\\\")
_LITTLE_MEMORY = words(r"\b(?:6|8|10|11|12|16|24) ?G(?:i?B)?\b|\bvram\b|显存|顯存")
_PAGED = words(
    r"\b(?:shared|main|system|host)\b (?:video |gpu |graphics |system )?(?:memory|ram)\b[^.\n]{0,60}"
    r"\b(?:instead|rather|grow\w*|us(?:es|ed|ing)|fill\w*|goes up|swap\w*)\b",
    r"共[享用] ?(?:显存|顯存|GPU ?(?:内存|記憶體|显存))",
)


def _find_paging(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """On Windows steps become longer while the card does less: its memory goes back and forth to the host's."""
    del evidence
    if not runs_badly(text) or text.find(_WINDOWS) is None or text.find(_LOADING):
        return
    idler = together(text, _STEPS_LONGER, _IDLER, around=1)
    paged = together(text, _PAGED, words(r"\bgpus?\b|\bvram\b|dedicated|显存|顯存|專用|专用"), around=1)
    if (idler and text.find(_LITTLE_MEMORY)) or (paged and text.find(DRAGS)):
        yield slow_finding("vram_spill_to_system_memory", 0.66, idler, paged)


_VRAM_FULL = words(
    r"\b(?:vram|(?:gpu|video|dedicated) (?:memory|ram))\b[^.\n]{0,40}\b(?:close to|almost|nearly|about|at|is|to|"
    r"around) (?:the )?(?:\w+ )?"
    r"(?:full\b|max\w*|limit\b|(?:9[5-9]|100) ?%)",
    r"\b(?:fills?|maxe?s? out|uses? (?:up )?all)\b[^.\n]{0,20}\bvram\b",
)
_CRAWLS = words(
    r"\b\d+(?:\.\d+)? ?(?:min\w*|hours?) (?:per|each|a|for (?:one|each|an?)) (?:iteration|step|image|it)\b|"
    r"\b\d{2,}(?:\.\d+)? ?s/(?:it|step)\b",
    r"\b(?:epically|insanely|extremely|incredibly|ridiculously|terribly|painfully|super) slow\w*",
)
_PER_ITERATION = Pattern(r"(?i)(?<![\d.])(\d{1,4}(?:\.\d+)?) ?s(?:ec\w*)?/it\b")
_SUDDENLY = words(r"\bsudden\w*|\bat once\b|\bout of nowhere\b|\bthen (?:it )?(?:jumps?|goes|drops?|falls?)\b")
_DRAWS = words(r"\bloras?\b|diffusion|\bsd(?:xl|1\.5)\b|\bflux\b|comfy\w*|kohya\w*|\bwebui\b|\bforge\b|dreambooth")
_JUMPS_BY = 5.0


def _find_filling(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """The card's memory is full, nothing fails, and a step takes minutes or many times what it took before."""
    del evidence
    if text.find(RAN_OUT) or text.find(_FAILED) or text.find(_LINUX):
        return
    full, crawls = text.find(_VRAM_FULL), text.find(_CRAWLS)
    if full and crawls:
        yield slow_finding("vram_spill_to_system_memory", 0.62, full, crawls)
    paces = [float(row[1]) for row in text.find_all(_PER_ITERATION, most=40)]
    sudden = text.find(_SUDDENLY)
    if sudden and text.find(_DRAWS) and len(paces) > 1 and max(paces) >= _JUMPS_BY * min(paces) > 0:
        yield slow_finding("vram_spill_to_system_memory", 0.56, sudden)


_LINUX = words(r"\bubuntu\b|\blinux\b|\bdebian\b|\bcentos\b|\bslurm\w*")
_FULL_USE = words(
    r"\b(?:gpus?|volatile)[- ]?(?:util\w*|usage|load)\b[^.\n]{0,24}\b(?:9[5-9]|100) ?(?:%|percent)",
    r"\bgpus? (?:\w+ ){0,3}(?:at|is|are|around|about) (?:\w+ ){0,2}(?:9[5-9]|100) ?(?:%|percent)",
    r"\b(?:9[5-9]|100) ?(?:%|percent)\b[^.\n]{0,20}\bgpu[- ](?:util\w*|usage|load)\b",
)
_WONDERS = words(r"\bslow\w*|\btoo long\b|\bnormal\b|\bexpected\b|\bhow long\b|\bspeed(?:ing)? (?:it )?up\b|慢|正常")


def _find_full_use(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """One card computes all the time and nothing else is complained of: it is as fast as it gets."""
    del evidence
    full = text.find(_FULL_USE)
    if full and text.find(_WONDERS) and runs_badly(text) and not text.find(_SEVERAL_CARDS):
        yield replace(slow_finding("compute_bound", 0.35, full), severity="info")


FINDERS = (
    text_finder("gpu_shared", _find_shared),
    text_finder("launch_bound", _find_small_work),
    text_finder("launch_bound", _find_launching),
    text_finder("launch_bound", _find_acting),
    text_finder("cudnn_benchmark_variable_shapes", _find_new_shapes),
    text_finder("tf32_off", _find_switched_off),
    text_finder("tf32_off", _find_no_better),
    text_finder("vram_spill_to_system_memory", _find_paging),
    text_finder("vram_spill_to_system_memory", _find_filling),
    text_finder("compute_bound", _find_full_use),
)

"""What people tell of a run: where it stops, what the machine does, how busy the device is, what differs elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from gpudoc.doctor.causes.lexicon import (
    ALONE_WORKS,
    HOST_MEMORY,
    LOW_USE,
    MACHINE,
    SEVERAL,
    STUCK,
)
from gpudoc.doctor.causes.memory import RAN_OUT
from gpudoc.doctor.causes.sentences import together
from gpudoc.doctor.causes.sign import about_training, quote, text_finder, words
from gpudoc.doctor.model import Evidence, Finding, Skip, observe
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.model import Text

_WORKERS = words(r"num_?workers?", r"\b(?:loader|loading|sub)?[- ]?workers\b", r"data ?-?_?loaders?\b")
_LOADER_FINE = words(
    r"(?:num_?)?workers?\W{0,12}(?:is |are |to )?(?:set (?:to )?)?\b0\b[^\n]{0,60}"
    r"\b(?:works?|normal\w*|fine|ok|okay|runs?|well|no (?:\w+ )?problem|not (?:stuck|hang)|slow)\b",
    r"\b(?:works?|normal\w*|fine|ok|okay|runs?|well|solved?|helps?)\b[^.\n]{0,40}(?:num_?)?workers?\W{1,5}(?:to )?0\b",
)
_ALL_BUSY = words(
    r"\bgpus?\b[^.\n]{0,60}\b100 ?%|\b100 ?%[^.\n]{0,40}\b(?:gpus?|util\w*|usage|load)\b|fully (?:used|occupied|loaded)"
)
_AT_START = words(
    r"\b(?:start|begin|init|launch|first|before|load|prepar|setup|wrap)\w*",
    r"epoch ?:? ?[01]\b|\b0 ?%|\b0/\d",
    r"model\.fit|DistributedDataParallel\(|init_process_group",
)
_END_OF_EPOCH = words(
    r"\b(?:end|last|final|finish\w*|complet\w*|after)\b[^.\n]{0,40}\b(?:epochs?|batch\w*|iterations?|steps?|data)\b",
    r"(?:\bnot|n't|\binsufficient|\bwithout) (?:\w+ ){0,3}(?:enough|sufficient)?[^.\n]{0,20}\b(?:elements?|samples?|"
    r"examples?|data|batches)\b",
    r"\bexit\w* (?:\w+ )?(?:early|earlier|first|before)",
)
_UNLIKE = words(
    r"\bsome\b[^.\n]{0,60}\b(?:others?|rest|remaining)\b",
    r"\b(?:one|first|second|rank ?\d|gpu ?\d)\b[^.\n]{0,50}\b(?:earl\w*|exit\w*|finish\w*|ends?|ended|no more|"
    r"runs? out)",
    r"(?:\bnot|n't) (?:have )?enough\b[^.\n]{0,60}\b(?:both|all|each|every|other|second|gpus?)\b",
    r"last batch\w*",
)
_NO_HELP = words(
    r"P2P_DISABLE[^\n]{0,60}(?:\bnot|n't|\bno\b|still|same|useless|in vain|without)\b[^\n]{0,24}"
    r"(?:work|help|fix|solv|chang|effect|differ|luck|hang|stuck|issue|problem|result)?",
)
_TIMED_OUT = words(r"Watchdog caught|collective operation timeout|ran for \d+ milliseconds")


def _find_stop(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """Where a run stops: with loader workers only, at the end of the data, or as soon as cards speak to each other."""
    del evidence
    if not about_training(text) or text.find(_TIMED_OUT):
        return
    stuck = text.find(STUCK)
    if stuck is None or together(text, HOST_MEMORY, words("full|exhausted|100 ?%")):
        return
    workers = together(text, STUCK, _WORKERS, around=1)
    if workers and text.find(_LOADER_FINE):
        yield Finding(id="job_hung", confidence=0.72, evidence=(quote(workers, "stops"),))
    # ranks that wait for each other keep their devices busy; idle ones wait for the host
    idle = together(text, LOW_USE, words(r"\b0 ?%|\b(?:is|to|at|becomes?|stays?) (?:\w+ )?(?:0|zero)\b"))
    if idle and not text.find(_ALL_BUSY) and together(text, HOST_MEMORY, words("full|exhaust")) is None:
        yield Finding(id="job_hung", confidence=0.6, evidence=(quote(stuck, "stops"), quote(idle, "device")))
    several = text.find(SEVERAL)
    if several is None:
        return
    ends = together(text, STUCK, _END_OF_EPOCH, around=1)
    unlike = text.find(_UNLIKE)
    if ends and unlike:
        both = (quote(ends, "stops"), quote(unlike, "ranks"))
        yield Finding(id="ddp_uneven_inputs", confidence=0.87, evidence=tuple(dict.fromkeys(both)))
        return
    works = text.find(ALONE_WORKS)
    busy = text.find(_ALL_BUSY)
    at_start = together(text, STUCK, _AT_START, around=1)
    if not text.find(_NO_HELP) and (busy or (works and at_start)):
        seen = (quote(stuck, "stops"), *(quote(m, "beside it") for m in (works, busy) if m))
        sure = 0.8 if works and busy else 0.66 if at_start else 0.6
        yield Finding(id="nccl_p2p_hang", confidence=sure, evidence=seen)


_GOES_DOWN = words(
    r"\b(?:(?:will|would|can|may|just|always|then|often|sometimes|suddenly|randomly|automatically|instantly|"
    r"immediately|keeps?|to|and|be|being|was|is|get|gets|got) )*"
    r"(?:re-?boots?|re-?boot(?:ed|ing)|restarts?|restarting|(?:shuts?|turns?|powers?|switch(?:es)?) ?(?:itself |it )?"
    r"(?:down|off)|shut-?downs?|shutting down|crash(?:es|ed)? hard|hard crash\w*|freezes? up|locks? up)\b",
    r"\b(?:system|computer|pc|machine|server|workstation|ubuntu|o/?s) (?:\w+ ){0,2}crash\w*",
    r"\b(?:black|blue) ?screens?\b|\bbsod\b|goes (?:black|dark)|(?:loses?|lost|no) (?:video )?signal",
    r"重启|关机|死机|黑屏|蓝屏",
)
_SCREEN = words(
    r"\b(?:monitors?|screens?|displays?)\b[^.\n]{0,30}\b(?:turns? off|goes? (?:off|black|dark|blank)|black|blank|"
    r"no signal|shuts? (?:off|down))"
)
_DELIBERATE = words(
    r"\b(?:after|before|until|by|without|requires?|need\w*|try|tried|have|had|has|did|please|must|should|i|we|"
    r"fixed|solved?|works?|helps?) (?:\w+ ){0,4}(?:re-?boot|re-?start|shut)\w*",
    r"(?:kernel|session|runtime|notebook|container|pod|server process|training|worker|job)s? (?:\w+ ){0,3}"
    r"(?:re-?start|re-?boot)\w*",
    r"\b(?:suspend|hibernat|sleep|secure boot|dual boot|update|upgrade|install)\w*",
)
_UNDER_LOAD = words(
    r"\bgpus?\b|\b[RG]TX\b|\bradeon\b|\b[1-5]0[5-9]0(?: ?ti)?\b|nvidia|\bcuda\b|titan|\bvideo card\b|显卡",
)
_MANY = words(r"\b(?:when|while|during|if|each|every|once|after|as soon as|whenever|with|run\w*|train\w*)\b|训练|时")


def _find_machine_down(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """The whole machine goes down under load: no program can do that, its power, heat or a defect can."""
    del evidence
    loaded = text.find(_UNDER_LOAD)
    if not about_training(text) and (loaded is None or text.find(words(r"\bgpu\b")) is None):
        return
    if together(text, HOST_MEMORY, words(r"\bfull\b|exhaust|max|limit|run\w* out|\b100 ?%")):
        return
    down = together(text, _GOES_DOWN, MACHINE, _MANY, without=_DELIBERATE)
    screen = text.find(_SCREEN)
    if down or screen:
        seen = tuple(quote(m, "machine") for m in (down, screen) if m)
        sure = 0.74 if loaded else 0.6
        yield Finding(id="gpu_hardware_fault", confidence=sure, evidence=tuple(dict.fromkeys(seen)))


_CPU_BOUND = words(r"\bcpu[- ]bound\b|\bbound by (?:the )?cpu|\bbottleneck\w* (?:is |by |on )*(?:the )?cpu\b")
_NEEDLESS = words(
    r"\b(?:batch[_ ]?size|bs)\W{1,5}(?:of |is |= ?)?`? ?1\b(?!\d|\.)",
    r"\bsmall(?:er)? (?:batch|model|network|net|mlp)\w*|\btiny\b",
    r"\b(?:inference|generat\w*|decod\w*|autoregressive|rnn|lstm|gru|policy|rollout|environments?)\b",
    r"\bmany (?:small|tiny|little) (?:kernels?|ops?|operations?)",
)
_INPUT = words(
    r"data ?-?_?loaders?\b|num_?workers|\bworkers?\b|augment\w*|\bdata loading\b|pre-?process\w*|"
    r"(?:load|read|decod)\w* (?:the |of )?(?:data|images?|videos?|files?|frames?)\b|"
    r"\b(?:data|images?|videos?|files?|frames?)\b[^.\n]{0,20}\b(?:load|read|decod)\w*|数据"
)
_ON_CPU = words(
    r"\bcpu\b[^.\n]{0,40}\b(?:instead|only|used for|does|is used|working)|"
    r"\bno process|not using (?:the |my )?gpu"
)
_UNHAPPY = words(
    r"\bslow\w*|\bspeed up\b|\bwhy\b|\bproblem|\bissue|\bnormal\b|\bwonder\w*|\blong\b|\bhelp\b|\?|\bhappen\w*|"
    r"\breason\b|"
    r"\bhours?\b|"
    r"怎么|如何|为什么|什么原因|请问|慢|解决|优化|正常|"
    r"\b(?:really|very|mostly|most of the time|always|only|too)\b[^.\n]{0,20}\b(?:low|idle|0)\b"
)


def _find_idle(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """The device is idle in a run that goes on: it waits for input, or for its next kernel."""
    del evidence
    idle, bound = text.find(LOW_USE), text.find(_CPU_BOUND)
    if bound and text.find(_UNDER_LOAD) and text.find(_INPUT) is None:
        yield Finding(id="launch_bound", confidence=0.5, severity="warning", evidence=(quote(bound, "bound"),))
    if idle is None or not about_training(text) or text.find(STUCK) or text.find(RAN_OUT):
        return
    if text.find(_UNHAPPY) is None or text.find(_ON_CPU):
        return
    waits = text.find(words(r"wait\w* (?:for|on) (?:the |its |new |next )*(?:data|batch\w*|input)"))
    small = text.find(_NEEDLESS)
    fed = text.find(_INPUT)
    if waits or fed or small is None:
        seen = (quote(idle, "device"), *(quote(m, "input") for m in (waits, fed) if m))
        sure = 0.6 if waits else 0.45 if fed else 0.42
        yield Finding(
            id="dataloader_bottleneck", confidence=sure, severity="warning", evidence=tuple(dict.fromkeys(seen))
        )
    else:
        seen = (quote(idle, "device"), quote(small, "kernels"))
        yield Finding(id="launch_bound", confidence=0.5, severity="warning", evidence=tuple(dict.fromkeys(seen)))


# tqdm at the end of an epoch: "469/469 [12:53<00:00"
_EPOCH_TIME = Pattern(r"(?<!\d)(\d{2,7})/\1 ?\[(?:(\d+):)?(\d+):(\d\d)<0?0:00")
_WARMED_BY = 2.5
_FIRST_PASS = words(
    r"\b(?:first|1st|initial) (?:training )?epoch\b|\bepoch ?[01]\b|\b(?:in|at) the (?:very )?begin+ing\b"
)
_ROUGH = words(r"\bslow\w*|\bunstable|\bnot (?:\w+ )?stable|\blong(?:er)?\b|\btakes?\b|\bminutes?\b|\bhours?\b")
_LATER = words(
    r"\b(?:after|from|since|in|by) (?:the )?(?:first|1st|second|2nd|third|epoch ?[12])\b[^.\n]{0,60}"
    r"\b(?:stable|normal\w*|fast\w*|fine|quick\w*|speed\w* up|ok)\b",
    r"\b(?:stable|normal\w*|fast\w*|fine|quick\w*|speed\w* up)\b[^.\n]{0,40}\b(?:after|from|since|in) (?:the )?"
    r"(?:first|1st|second|2nd|later|epoch ?[12])\b",
)


def _find_warming(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """Epochs that become much shorter by themselves: the first had to read from the storage, the later from memory."""
    del evidence
    rows = list(text.find_all(_EPOCH_TIME, most=20))
    seconds = [int(r[2] or 0) * 3600 + int(r[3]) * 60 + int(r[4]) for r in rows if r[1] == rows[0][1]]
    falls = len(seconds) >= 3 and all(b <= a for a, b in pairwise(seconds))
    uneven = together(text, _FIRST_PASS, _ROUGH, _LATER, around=1)
    if uneven and about_training(text) and not (falls and seconds):
        yield Finding(id="slow_storage", confidence=0.55, severity="warning", evidence=(quote(uneven, "epochs"),))
    if falls and seconds[-1] > 0 and seconds[0] >= max(_WARMED_BY * seconds[-1], 30):
        value = f"{seconds[0]} s for the first pass over the data, {seconds[-1]} s for the last"
        yield Finding(
            id="slow_storage",
            confidence=0.66,
            severity="warning",
            evidence=(observe("epochs", value, rows[0].line.origin),),
        )


_SLOWS = words(
    r"\b(?:times?|speed|fps|it/s|hz|inference|training|iterations?|batch\w*|performance|throughput)\b[^.\n]{0,60}"
    r"\b(?:gradual\w*|progressive\w*|steadi\w*|over time|more and more|continu\w*|longer and longer|slower and slower|"
    r"after (?:about |around )?(?:an?|some|one|\d+) (?:hours?|minutes?|while))\b[^.\n]{0,60}"
    r"(?:\b(?:increas|slow|drop|decreas|degrad|low|rise|longer)\w*)?",
    r"\b(?:gradual\w*|progressive\w*|steadi\w*|more and more)\b[^.\n]{0,30}\b(?:slow|increas|degrad|decreas)\w*"
    r"[^.\n]{0,40}\b(?:times?|speed|inference|training|epochs?)\b",
    r"\b(?:slower and slower|longer and longer)\b",
    r"\bafter (?:about |around )?(?:an?|some|one|\d+) (?:hours?|minutes?|while)\b[^.\n]{0,40}\b(?:speed|fps|hz|it/s)\b",
    r"\b(?:slower|slow|lower)\b[^.\n]{0,40}\b(?:after (?:about |around )?(?:an?|some|one|\d+) (?:hours?|minutes?)|"
    r"over time)\b",
)
# what is meant to change with time
_MEANT = words(r"learning[ -]rate|\blr\b|warm-?up|accurac\w*|\bloss\b|schedul\w*|curriculum|resolution")
_FALLS = words(r"\b(?:increas|slow|drop|decreas|degrad|low|longer|worse)\w*")


def _find_tiring(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """Each step takes a little longer than the one before, and no memory is spoken of: the card gets hot."""
    del evidence
    if not about_training(text) or text.find(words(r"\bmemory\b|\bram\b|retain_graph|\+= ?loss|append\(")):
        return
    slows = together(text, _SLOWS, _FALLS, without=_MEANT)
    if slows:
        yield Finding(id="thermal_throttle", confidence=0.45, severity="warning", evidence=(quote(slows, "speed"),))


_TRUE_HERE = words(r"(?:is_available|cuda|gpu)[^\n]{0,40}(?:\n[^\n]{0,30}){0,12}?\bTrue\b", r"(?m)^\W{0,6}True\b")
_FALSE_THERE = words(r"(?:is_available|cuda|gpu)[^\n]{0,40}(?:\n[^\n]{0,30}){0,12}?\bFalse\b", r"(?m)^\W{0,6}False\b")
_ASKED = words(r"is_available\(", r"cuda (?:is )?available", r"\bgpu (?:is )?available")
_SCHEDULED = words(
    r"\b(?:srun|sbatch|salloc|qsub|bsub|slurm\w*|pbs)\b", r"compute node|login node|head node|reserved node"
)
_IN_PROGRAM = words(
    r"\b(?:within|inside|in|from|running|run)\b[^.\n]{0,30}\b[\w/]+\.(?:py|sh|ipynb)\b",
    r"\bthe (?:same|exact)[^.\n]{0,30}\bcode\b",
    r"\bthis (?:one|repo|project|script|program)\b",
)
_RAY = words(r"@?ray\.remote|\bray\b[^.\n]{0,40}(?:actor|task|worker)", r"num_cpus ?= ?\d")


def _find_elsewhere(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """torch sees the GPU in one place and not in the other: what differs is what the place was given."""
    del evidence
    if text.find(_ASKED) is None:
        return
    here, there = text.find(_TRUE_HERE), text.find(_FALSE_THERE)
    lost = there or text.find(words(r"is_available[^\n]{0,12}False"))
    ray = text.find(_RAY)
    if ray and lost:
        yield Finding(id="visible_devices_hides_gpu", confidence=0.72, evidence=(quote(ray, "place"),))
    if here is None or there is None:
        return
    scheduled = text.find(_SCHEDULED)
    program = text.find(_IN_PROGRAM)
    if scheduled:
        seen = (quote(there, "there"), quote(scheduled, "place"))
        yield Finding(id="no_gpu_on_machine", confidence=0.78, evidence=tuple(dict.fromkeys(seen)))
    elif program:
        both = (quote(here, "here"), quote(there, "there"), quote(program, "place"))
        yield Finding(id="visible_devices_hides_gpu", confidence=0.7, evidence=tuple(dict.fromkeys(both)))


FINDERS = (
    text_finder("nccl_p2p_hang", _find_stop),
    text_finder("gpu_hardware_fault", _find_machine_down),
    text_finder("dataloader_bottleneck", _find_idle),
    text_finder("slow_storage", _find_warming),
    text_finder("thermal_throttle", _find_tiring),
    text_finder("visible_devices_hides_gpu", _find_elsewhere),
)

"""What people find in their own loop: Python that computes, what is logged and saved, how batches arrive."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.memory import RAN_OUT
from gpudoc.doctor.causes.sentences import together
from gpudoc.doctor.causes.sign import text_finder, words
from gpudoc.doctor.causes.told_pace import DRAGS, about_learning, runs_badly, slow_finding
from gpudoc.doctor.model import Evidence, Finding, Skip
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.model import Text

_FASTER_WITHOUT = words(
    r"\b(?:faster|accelerat\w*|speed ?-?up|optimi[sz]e|vectori[sz]\w*|paralleli[sz]\w*|efficient\w*)\b"
)
_LOOPS = words(
    r"\b(?:python |nested |inner |explicit |naive )*for[- ]?loops?\b",
    r"\b(?:python|nested|inner|pixel|explicit)[- ]loops?\b",
    r"\bloops? (?:over|in|inside|within) (?:the |each |every |all |a )?(?:python|batch\w*|samples?|loss|forward|"
    r"boxes|points|pixels|"
    r"tokens|images|instances|anchors)\b",
    r"\"for\" (?:in|loop)|\bthe for\b[^.\n]{0,12}\bin python\b",
    r"\b(?:pure|plain|slow|native|single[- ]threaded) python\b|"
    r"\bpython (?:code|overhead|execution|interpreter|processing|side)\b",
    r"\b(?:hungarian|bipartite) match\w*|\blinear[-_]sum[-_]assignment\b",
    r"\bthe gil\b|\bnumpy\b[^.\n]{0,40}\b(?:on (?:the )?cpu|every|each|instead of torch|conversion|loss)\b",
    r"\b(?:iterat\w+|itertools|list comprehensions?|deepcopy|copy\.copy)\b[^.\n]{0,30}\b(?:every|each|"
    r"per) (?:\w+ )?(?:step|iteration|"
    r"sample|batch|element)\b",
    r"\b(?:linear_sum_assignment|hungarian\w*|scipy|sklearn|pandas|py_func\w*|numpy_function|regex|beam search|"
    r"metrics?)\b[^.\n]{0,30}"
    r"\b(?:on (?:the )?cpu|in python|in numpy|every step|each step|per step|in the loop|computation|calculation)\b",
    r"for 循环|循环太(?:慢|多)|双重循环",
)
_OTHER_LOOPS = words(
    r"\btraining loop\b[^.\n]{0,20}\b(?:is|was) (?:fine|fast)|\bdata ?loader\b|\b\w*workers?\b|\bepoch loop\b|"
    r"\bprint\w*|\bconverg\w*"
)


# three or more heads of loops in a row, as code is pasted
_NESTED = Pattern(r"(?m)^(?:for \w[^\n]{0,80} in [^\n]{0,80}:[^\n]{0,80}\n){2}for \w[^\n]{0,80} in [^\n]{0,80}:")


def _find_python(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """A loop in Python does what a tensor operation should do."""
    del evidence
    loops = together(text, _LOOPS, DRAGS, without=_OTHER_LOOPS) or together(
        text, _LOOPS, _FASTER_WITHOUT, without=_OTHER_LOOPS
    )
    if loops is None:
        loops = together(text, _LOOPS, DRAGS, without=_OTHER_LOOPS, around=1)
    computes = text.find(words(r"\bloss\b|torch|\bmodel\b|\bforward\b|\bbackward\b|\bgpus?\b|\btrain\w*|\bcuda\b|训练"))
    nested = text.find(_NESTED) if text.find(DRAGS) else None
    loops = loops or nested
    if loops and computes and not text.find(RAN_OUT) and not text.find(words(r"Traceback \(")):
        yield slow_finding("python_bound", 0.68, loops)


_RECORDS = words(
    r"\btensor ?-?board\w*|\bwandb\b|\bw&b\b|\bweights (?:and|&) biases\b|\bcomet(?:\.ml|_ml)?\b|\bmlflow\b|"
    r"\bneptune\b|"
    r"\bclearml\b|\bvisdom\b|\bsummar(?:y|ies)\b|\bSummaryWriter\b|\badd_(?:histogram|scalar|image|figure|video)s?\b",
    r"\bhistograms?\b|\bprogress[- ]?bars?\b|\btqdm\b|\brich (?:progress)?\b|\bloggers?\b|\blogging\b|"
    r"\blog (?:output|messages?|lines?|calls?|images?)\b|"
    r"\bverbos\w*|\bprint(?:s|ing| statements?)?\b|\bplot(?:s|ting)?\b|\bcallbacks?\b",
    r"\bdump(?:s|ing)? (?:\w+ ){0,2}(?:images?|figures?|data)\b|\bvisuali[sz]\w*|\bmatplotlib\b|\bplt\b|\bstdout\b|"
    r"\bconsole output\b",
    r"日志|打印|进度条|画图",
)
_DRAGS_SO = words(
    r"\b(?:block(?:s|ing)|halv(?:es|ed)|lag(?:s|ging)?|stalls?)\b",
    r"\bslow(?:s|ed|er|ly|ing|down)?\b",
    r"\b(?:remov|disabl|deactivat|without|turn\w* off)\w*[^.\n]{0,40}\b\d+(?:\.\d+)? ?(?:s|sec\w*|min\w*|ms)\b",
    r"\b(?:remov|disabl|without|turn\w* off|switch\w* off|drop|comment)\w*[^.\n]{0,60}\b(?:faster|speed\w*|\d+ ?x|"
    r"improv\w*)\b",
    r"\b(?:speed ?-?up|faster|improv\w* (?:\w+ )?speed)\b",
    r"\btimes? (?:\w+ ){0,3}(?:increas|grow|explod)\w*|\b\d+ ?% more time\b|\btimes? longer\b|\beternity\b",
    r"\b(?:decreas|reduc|hurt|degrad|harm)\w* (?:\w+ ){0,3}(?:speed|throughput|performance)\b",
    r"\btakes? (?:\w+ ){0,3}(?:long\w*|most|minutes|hours|\d+(?:-\d+)? ?%|a lot|quite some)\b|\boverhead\b|"
    r"\bbottleneck\w*",
    r"慢|耗时",
)
_ELSE_SHOWN = words(
    r"\bprint(?:s|ed)? (?:out )?(?:nothing|an error|the following|this)\b|\berror\b|\blog (?:file|below|says)\b|"
    r"\b(?:data|image|video) ?loading\b|\bdata ?loaders?\b|\bworkers?\b|\bprofil\w*|\bsee (?:the )?log|"
    r"\bis slow compared to\b"
)
_LIMITED = words(
    r"\b(?:429|rate[- ]?limit\w*|throttl\w*)\b[^\n]{0,80}\b(?:wandb|comet|neptune|mlflow|clearml)\b",
    r"\b(?:wandb|comet|neptune|mlflow|clearml)\b[^\n]{0,80}\b(?:429|rate[- ]?limit\w*|throttl\w*)\b",
    r"\bData processing is lagging\b|\bmessages? queue\b[^\n]{0,30}\blag\w*",
)
# Keras prints it itself; what takes a few milliseconds is not worth a word
_CALLBACK = Pattern(
    r"(?i)\bcallbacks? method `?on_train_batch_(?:begin|end)`? is slow compared to the batch time "
    r"\(batch time: (?P<batch>[\d.]+)s vs `?on_train_batch_\w+`? time: (?P<callback>[\d.]+)s"
)
_WORTH_SECONDS = 0.02


def _find_recording(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """What is shown, logged or tracked takes the time: it is fast without."""
    del evidence
    callback = text.find(_CALLBACK)
    if callback and float(callback["callback"]) > max(float(callback["batch"]), _WORTH_SECONDS) and text.find(DRAGS):
        yield slow_finding("logging_each_step", 0.66, callback)
    if not about_learning(text) or text.find(RAN_OUT) or text.find(words(r"Traceback \(")):
        return
    limited = text.find(_LIMITED)
    if limited and text.find(DRAGS):
        yield slow_finding("logging_each_step", 0.6, limited)
    said = together(text, _RECORDS, _DRAGS_SO, without=_ELSE_SHOWN)
    if said:
        yield slow_finding("logging_each_step", 0.58, said)


_SAVES = words(
    r"\bcheckpoint(?:s|ing)?\b|\bckpts?\b|\bsav(?:e|es|ed|ing) (?:the |a |my |all |every )*(?:models?|weights|"
    r"checkpoints?|states?)\b|"
    r"\bsaver\b|\bstate_dict\b[^.\n]{0,20}\bsav\w*|\bmodel saving\b|保存(?:模型|权重)"
)
_COSTLY = words(
    r"\b(?:not|n't|more|in)[- ]?(?:very )?efficient\b|\bwast(?:e|es|ed|ing|eful)\b[^.\n]{0,30}\btime\b",
    r"\b(?:cost|tak|took|spen|wast|need|consum)\w* (?:\w+ ){0,4}(?:time|long\w*|minutes?|hours?|ages|forever|more)\b",
    r"\boverhead\b|\bbottleneck\b|\bslow(?:s|er|ing)? (?:down )?|\btime[- ]consuming\b|慢|耗时",
)
_MANY_TIMES = words(
    r"\b(?:after|at|every|each|per|for every)\b[^.\n]{0,16}\b(?:epochs?|steps?|iterations?|batch\w*|time|\d+)\b",
    r"\b(?:often|frequent\w*|less often|interval|once per|switched off|disable\w*|skip\w*|turn\w* off|unnecessary)\b",
    r"\bsteps per checkpoint\b|\bsave_(?:steps|freq|every|interval|period)\b|每(?:个|一)?(?:轮|步|次)",
)
_RESTORES = words(
    r"\bgradient checkpoint\w*|\bactivation checkpoint\w*|\bcheckpoint\w* (?:load|restor|resum)\w*|\b(?:load|restor|"
    r"resum)\w*[^.\n]{0,24}\bcheckpoint"
    r"|\bdownload\w*|\btimed? ?out\b|\bdisk (?:is )?full|No space"
)


# one save alone is told to last long, or the run stands still at a round number of steps
_LASTS = words(
    r"\bsav(?:e|es|ing) (?:\w+ ){0,2}(?:checkpoints?|ckpts?)\b[^.\n]{0,30}\b(?:needs?|takes?|took)\b[^.\n]{0,24}"
    r"\b(?:long\w*|minutes?|mins?|hours?|forever|ages)\b",
    r"\b(?:takes?|took|needs?|spends?) (?:\w+ ){0,4}(?:long\w*|minutes?|mins?|hours?|forever|ages) "
    r"(?:to save|(?:for |on )?saving) (?:\w+ ){0,2}(?:checkpoints?|ckpts?)\b",
    r"\btime\b[^.\n]{0,24}\b(?:to save|saving) (?:\w+ ){0,2}(?:checkpoints?|ckpts?)\b[^.\n]{0,24}"
    r"\b(?:long\w*|minutes?|hours?)\b",
    r"\bsave checkpoints? needs? (?:a )?long\b",
    r"保存(?:模型|权重|检查点)[^。\n]{0,12}(?:很久|很慢|太久|耗时)",
)
_STANDS = words(
    r"\b(?:wait(?:s|ing)?|paus\w+|freez\w+|hangs?|stands still|suspen\w+|stall\w*)\b(?! (?:at|for) the start)"
    r"[^.\n]{0,30}\b(?:every|each|after every) [1-9]\d{0,2}(?:00|k) (?:\w+ )?(?:steps|iterations|iters)\b"
)
_TESTS = words(r"\beval\w*|\bvalidat\w*|\btests?\b|\bval\b")


def _find_saving(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """Saving costs time, and it is done again and again."""
    del evidence
    said = together(text, _SAVES, _COSTLY, _MANY_TIMES, without=_RESTORES, around=1)
    if said and runs_badly(text):
        yield slow_finding("checkpoint_too_often", 0.6, said)
        return
    lasts = together(text, _LASTS, without=_RESTORES)
    if lasts:
        yield slow_finding("checkpoint_too_often", 0.52, lasts)
        return
    stands = text.find(_STANDS)
    if stands and not text.find(_TESTS) and not text.find(RAN_OUT):
        yield slow_finding("checkpoint_too_often", 0.42, stands)


_PINNED = words(
    r"\bpin_?(?:ned)?[_ ]?memory\b|\bpin(?:ned|ning)? (?:host )?memory\b|\bpage-?locked\w*|\bpagelocked\w*|"
    r"\bpageable\b|\bnon[-_]blocking\b|\b(?:un|not )?pinned\b|\bcudaHostAlloc\b"
)
_TRANSFERS = words(
    r"\b(?:copy|copies|copying|copied|transfer\w*|memcpy\w*|htod|h2d|host[- ]to[- ]device|cpu ?(?:->|to|→) ?gpu|"
    r"upload\w*|"
    r"mov(?:e|ing) (?:\w+ ){0,3}to (?:the )?gpu|\.cuda\(|\.to\(\W?(?:device|cuda))"
)
_RATES = words(
    r"\b\d+(?:\.\d+)? ?G(?:i?B)(?:/s|ps)?\b|\bbandwidth\b|\b\d+(?:\.\d+)? ?(?:ms|s|sec|seconds)\b|\bslow\w*|"
    r"\bfaster\b|\boverhead\b|\btakes?\b"
)
_RULE = words(r"APIs use PAGEABLE memory which causes", r"use PINNED memory instead", r"\bPageable +Device\b")
_MOVED_HERE = words(
    r"\b(?:copy|copying|transfer\w*|mov(?:e|ing))\b[^.\n]{0,60}\bto (?:the |my )?(?:gpu|device|cuda)\b[^.\n]{0,60}"
    r"\b(?:takes?|took|slow\w*|most|longer|\d+ ?%|\d+(?:\.\d+)? ?m?s)\b"
)


_TELLS = words(
    r"\b(?:step|iteration|epoch|batch) time\b|\b\d+(?:\.\d+)? ?x faster\b|\bspeed-?up\b",
    r"\bstill us(?:es|ed|ing)\b[^.\n]{0,16}\bpageable\b|\bpageable (?:memory )?instead of\b|"
    r"\bstill pageable\b",
)


_UNPINNED = words(
    r"\b(?:not|n't|never|un)[- ]?(?:\w+ )?pinned\b|\bpin_memory\W{1,3}false\b",
    r"\b(?:no effect|does nothing|no-op|same (?:time|speed))\b|\bblock(?:s|ed|ing)\b[^.\n]{0,16}\b(?:by|in|"
    r"on)\b[^.\n]{0,16}\b(?:copy|_to_copy|"
    r"transfer|memcpy\w*|to\()",
)


def _find_copies(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """Batches go to the device from pageable memory: slower than the link, and the host waits."""
    del evidence
    rule = text.find(_RULE)
    if rule:
        yield slow_finding("pageable_copies", 0.86, rule)
        return
    if text.find(RAN_OUT) or text.find(words(r"Traceback \(")):
        return
    pinned = together(text, _PINNED, _TRANSFERS, around=2)
    if pinned and text.find(_RATES) and text.find(DRAGS):
        yield slow_finding("pageable_copies", 0.7, pinned)
    elif pinned and text.find(words(r"\d ?G(?:i?B)(?:/s|ps)?\b")):
        yield slow_finding("pageable_copies", 0.64, pinned)
    elif pinned and text.find(_UNPINNED):
        yield slow_finding("pageable_copies", 0.66, pinned)
    elif named := together(text, _PINNED, _TELLS, around=3):
        yield slow_finding("pageable_copies", 0.58, named)
    moved = text.find(_MOVED_HERE)
    if moved and pinned is None and about_learning(text):
        yield slow_finding("pageable_copies", 0.5, moved)


_PUT_TOGETHER = words(
    r"\b(?:un|de|re)?-?collat\w+|\bbatch (?:assembly|padding)\b|\bun-?pickl\w*|\bre-?order\w* (?:the )?batch\w*"
)
_NOT_IN_WORKERS = words(
    r"\b(?:main|parent|single) (?:process|thread)\b|\bwithout multiprocessing\b|\bnot (?:\w+ ){0,3}(?:with|"
    r"in) (?:multiprocessing|"
    r"parallel|workers?)\b",
    r"\b(?:sequential\w*|serial\w*|one (?:after|by) (?:the other|one)|one at a time|foreground|single[- ]threaded)\b",
    r"\bpin[_ ]memory (?:thread|loop)\b|_pin_memory_loop",
    r"\bloops? (?:over|that)\b|\bthat is a loop\b|\btoo much time\b|\bmost of the time\b|\bprocess\b|\bbottleneck\w*",
)


def _find_putting_together(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """Samples are put together, or taken apart again, where no worker helps."""
    del evidence
    said = together(text, _PUT_TOGETHER, _NOT_IN_WORKERS, around=2)
    if said and text.find(DRAGS) and runs_badly(text):
        yield slow_finding("collate_in_main_process", 0.72, said)


_SLOWEST = words(
    r"\bslow(?:est)? (?:\w+ )?workers?\b|\b(?:one|a single|some) (?:of the )?(?:data ?loader |"
    r"loader )?workers? (?:is|was|are|being|takes?|"
    r"gets?) (?:\w+ ){0,3}(?:slow\w*|long\w*|stuck|behind)\b",
    r"\bworkers?\b[^.\n]{0,40}\b(?:straggl\w*|head[- ]of[- ]line|lags? behind)\b|\bstraggl\w*[^.\n]{0,40}\b(?:worker|"
    r"loader)\w*",
    r"\bwaits?\b[^.\n]{0,30}\b(?:each|every|all)\b[^.\n]{0,12}\bworkers?\b[^.\n]{0,16}\bin (?:turn|order)\b",
    r"\bone worker\b[^.\n]{0,60}\b(?:block|hold|wait|delay)\w*",
    r"\bin[_-]?order\b[^.\n]{0,30}\b(?:worker|loader|batch)\w*[^.\n]{0,60}\b(?:slow|block|wait)\w*",
)
_UNEVEN = words(
    r"\b(?:some|one|few|occasional) (?:\w+ )?(?:batch\w*|samples?|files?|"
    r"items?)\b[^.\n]{0,40}\b(?:\d+ (?:or more )?s\w*|much longer|"
    r"very slow|slower|long time)\b",
    r"\b(?:sometimes|occasionally|suddenly)\b[^.\n]{0,60}\b(?:batch|load)\w*[^.\n]{0,60}\b(?:seconds|minutes|longer|"
    r"slow\w*)\b",
    r"\bvariable (?:amount of )?time\b",
)


def _find_slowest(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """One worker is behind, and the order of the batches makes all wait for it."""
    del evidence
    slowest = text.find(_SLOWEST)
    if slowest and runs_badly(text):
        yield slow_finding("slow_worker", 0.82, slowest)
    uneven = together(text, _UNEVEN, words(r"\bload\w*|\bbatch\w*"), around=1)
    if (
        uneven
        and slowest is None
        and runs_badly(text)
        and text.find(words(r"\bloader\b|data ?loader|\bworkers?\b|load time"))
    ):
        yield slow_finding("slow_worker", 0.45, uneven)


_VALUES = words(r"\.item\(\)|\.tolist\(\)|\bfloat\(loss")
_IDLES = words(
    r"\bidle\b[^.\n]{0,16}\btime\b|\b\d\d(?:\.\d+)? ?% (?:\w+ )?idle\b|\bidle (?:for )?\d\d",
    r"\bthroughput\b[^.\n]{0,16}\b(?:low\w*|reduc\w*)",
)
_READS_BACK = words(
    r"\b(?:loss\w*|host|cpu|code|loop|it|optimizer|metrics?)\b[^.\n]{0,30}\breads? (?:\w+ ){0,3}(?:the device|back|"
    r"from the gpu)\b",
    r"\b(?:read|copied|moved|transferred|pull\w*|fetch\w*)\b[^.\n]{0,24}\b(?:back|from (?:the )?gpu|"
    r"to (?:the )?(?:cpu|host))\b"
    r"[^.\n]{0,40}\b(?:each|every|per) (?:\w+ )?(?:step|iteration|batch)\b",
    r"\bdrains? the (?:gpu|stream|command buffer|queue|device)\b|\bstream syncs?\b|\bimplicit sync\w*",
)


_FED = words(r"data ?-?_?loader|num_workers|\bdata loading\b")


def _find_reading_back(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """Values are read from the device within each step, which makes the host wait for it."""
    del evidence
    said = text.find(_READS_BACK)
    per_step = text.find(words(r"\b(?:each|every|per) (?:\w+[- ])?(?:step|iteration|batch)\b|\bper-step\b"))
    read = text.find(_VALUES)
    if read and text.find(_IDLES) and not text.find(_FED) and runs_badly(text):
        yield slow_finding("gpu_sync_each_step", 0.62, read)
    if said and per_step and runs_badly(text):
        yield slow_finding("gpu_sync_each_step", 0.74, said)


_BLAMED = words(
    r"\b\d{2,3} (?:is )?(?:usually |often |probably |far |much )?(?:too (?:high|many|large|much)|more than)\b",
    r"\b(?:too many|excessive|fewer|reduc\w+|lower\w*|decreas\w+|less) (?:\w+"
    r" ){0,4}(?:num_?)?workers?\b[^.\n]{0,60}\b(?:fix\w*|solv\w*|help\w*|"
    r"fast\w*|works?|slow\w*|free\w*)\b",
)
_LOADERS = words(r"\w*num_?workers?\b|\b(?:data ?loader|loader|loading) (?:workers?|processes)\b|\bworkers\b")
_ASKED = Pattern(
    r"(?i)\b(?:(\d{1,3}) (?:worker |loader |loading )?(?:processes|workers|threads)\b|num_?workers?\W{1,4}(\d{1,3})\b)"
)
_CPUS = Pattern(r"(?i)\b(?:only |just |with |has |have )(\d{1,2})[- ](?:logical |physical |v)?(?:cpu|core)s?\b(?! ?%)")
_FOR_LOADING = words(r"\bload\w*|\bpre-?process\w*|\bworkers?\b|data ?loader|\baugment\w*")


def _find_crowd(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """More loader workers than CPUs, by the numbers that the text names, or by its own verdict."""
    del evidence
    asked, cpus = text.find(_ASKED), text.find(_CPUS)
    workers = int(asked[1] or asked[2]) if asked else 0
    crowd = asked is not None and cpus is not None and workers > int(cpus[1]) and text.find(_FOR_LOADING) is not None
    blamed = together(text, _BLAMED, _LOADERS, around=1)
    if crowd and asked is not None and about_learning(text):
        yield slow_finding("too_many_workers", 0.7, asked, cpus)
    elif (
        blamed
        and about_learning(text)
        and not text.find(RAN_OUT)
        and not text.find(words(r"\bshm\b|shared memory|open files|\bram\b|\bmemory\b"))
    ):
        yield slow_finding("too_many_workers", 0.62, blamed)


FINDERS = (
    text_finder("python_bound", _find_python),
    text_finder("logging_each_step", _find_recording),
    text_finder("checkpoint_too_often", _find_saving),
    text_finder("pageable_copies", _find_copies),
    text_finder("collate_in_main_process", _find_putting_together),
    text_finder("slow_worker", _find_slowest),
    text_finder("gpu_sync_each_step", _find_reading_back),
    text_finder("too_many_workers", _find_crowd),
)

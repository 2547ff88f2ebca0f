"""What people tell of a program's own doing: where it computes, what it keeps, what it waits for, what it writes."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.lexicon import DEVICE_MEMORY, FULL, HOST_MEMORY
from gpudoc.doctor.causes.memory import RAN_OUT
from gpudoc.doctor.causes.sentences import together
from gpudoc.doctor.causes.sign import UNAVAILABLE, about_training, quote, text_finder, words
from gpudoc.doctor.model import Evidence, Finding, Skip
from gpudoc.facts.readers.model import Text

_ON_CPU = words(
    r"\b(?:runs?|running|trains?|trained|training|us(?:e|es|ing)|work(?:s|ing)?|comput\w*|execut\w*|happen\w*|"
    r"performed|"
    r"stays?|goes|resources?)\b[^.\n]{0,36}\b(?:on|in|with|by|only|the|my|your|is|still|all|mainly|mostly)\b"
    r"[^.\n]{0,12}\bcpus?\b",
    r"\bcpus?\b[^.\n]{0,24}\b(?:instead of|rather than|and not|but not)\b[^.\n]{0,16}\bgpu",
    r"\bgpus?\b[^.\n]{0,24}(?:\bnot|n't|\bnever|\bhardly|\bbarely)\b[^.\n]{0,16}\b(?:used|using|utili[sz]ed|working|"
    r"involved)\b",
    r"(?:\bnot|n't|\bnever) (?:\w+ ){0,3}(?:us(?:e|es|ing)|run\w*|utili[sz]\w*|train\w*) (?:\w+ ){0,2}(?:the |my |"
    r"any )?gpus?\b",
    r"(?:用|跑|使用)的?(?:还|都)?(?:是|在) ?CPU|没有?(?:用|使用|调用|跑)到? ?GPU|GPU ?(?:没有?|未)被?(?:使用|用|调用)",
)
_MEANT = words(
    r"\b(?:how|want|possible|able|like|need|can (?:i|we|you|it)|could)\b[^.\n]{0,40}\b(?:on|with|using|"
    r"use)\b[^.\n]{0,12}\bcpus?\b",
    r"\b(?:don't|do not|doesn't|without) (?:have )?(?:an? |any )?(?:nvidia )?gpus?\b|\bno gpus?\b",
    r"\b(?:heavily|fully|well|efficiently|much|enough)\b",
    r"\bcores? of (?:the |my |our )?cpus?\b|\bgpus?\b[^.\n]{0,24}\b(?:[5-9]\d|100) ?%",
    r"\b(?:faster|slower|quicker|fast|slow) (?:\w+ ){0,4}(?:than|as)\b|\bthan (?:on |with |in )?(?:the |a |"
    r"my )?[cg]pus?\b",
    r"\bcpu[- ](?:only|build|version|offload\w*|memory|ram|time|usage|util\w*|load|cores?|side|threads?|bound)\b",
    r"\b(?:load\w*|pre-?process\w*|augment\w*|decod\w*|transform\w*|tokeni[sz]\w*)\b",
)


def _find_on_cpu(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """The work is seen on the CPU although a GPU was meant, and nothing is said of a build or a driver."""
    if not about_training(text) or text.find(words(UNAVAILABLE, "not compiled", r"Traceback \(")):
        return
    if evidence.machine.torch.is_available is False or text.find(words("CUDA_VISIBLE_DEVICES")):
        return
    said = together(text, _ON_CPU, words(r"\bcpus?\b|\bgpus?\b"), without=_MEANT)
    if said and text.find(words(r"\bgpus?\b|\bcuda\b", r"\bslow\w*")):
        yield Finding(id="training_on_cpu", confidence=0.53, severity="warning", evidence=(quote(said, "device"),))


_ON_FIRST = words(
    r"\b(?:on|in|at|of|onto|to|into|use[sd]?|using) (?:the |my )?(?:gpu ?[:#-]? ?0|cuda:0|device 0|first (?:gpu|"
    r"card))\b",
    r"\bgpu ?[:#-]?0\b",
    r"0 ?号 ?(?:GPU|卡)|第一[张块]卡",
)
_OF_OTHERS = words(
    r"\b(?:gpus?|cuda|ranks?|process\w*)[ :#-]?[1-9]\b|\b1-N\b",
    r"\b(?:other|each|every|all|too many|several|extra|additional|multiple|another|"
    r"some)\b[^.\n]{0,20}\b(?:process\w*|ranks?|contexts?)",
    r"\bprocess\w*[^.\n]{0,24}\b(?:other|each|every|all) (?:the )?gpus?\b",
)
_PROCESSES = words(r"\bprocess\w*|\branks?\b|\bcontexts?\b|进程")
_TAKE = words(
    r"\b(?:us(?:e|es|ing|age)|tak\w*|occup\w*|alloc\w*|hold\w*|consum\w*|memory|mem|space|have|has|find|see)\b",
    r"\d ?[mg](?:i?b)?\b",
    r"占",
)


def _find_on_first(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """Processes that belong to other cards hold memory on the first."""
    del evidence
    said = together(text, _ON_FIRST, _OF_OTHERS, _PROCESSES, _TAKE)
    if said:
        over = text.find(words("out of memory", r"\boom\b", r"memory (?:\w+ ){0,2}overflow\w*")) is not None
        yield Finding(
            id="extra_contexts_on_gpu0",
            confidence=0.84,
            severity="broken" if over else "warning",
            evidence=(quote(said, "first GPU"),),
        )


_KEEPS = words(r"\b(?:cach|stor|keep|kept|append|collect|accumulat|retain|hold|held|gather|concat|buffer)\w*\b")
_EVALUATES = words(r"\b(?:validat\w*|evaluat\w*|eval|val|test|predict\w*|inference)(?:_\w+)?\b")
_RESULTS = words(r"\b(?:outputs?|predictions?|preds|logits|results?|embeddings?|features|targets?|tensors?)\b")
_MEMORY_TROUBLE = words(
    r"\bmemory\b[^.\n]{0,40}\b(?:leak|issue|problem|grow|increas|full|spike)\w*", r"\bleak\w*", r"\boom\b"
)


def _find_kept_results(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """What each step of the evaluation returns is kept until its end."""
    del evidence
    kept = together(text, _KEEPS, _EVALUATES, _RESULTS)
    trouble = text.find(RAN_OUT) or text.find(_MEMORY_TROUBLE)
    if kept and trouble and together(text, HOST_MEMORY, FULL) is None:
        seen = (quote(kept, "kept"), quote(trouble, "memory"))
        yield Finding(id="oom_eval_accumulates_predictions", confidence=0.8, evidence=tuple(dict.fromkeys(seen)))


_BOUNDARY = words(
    r"\b(?:after|between|before|at the (?:start|begin\w*|end) of|(?:start|begin\w*|end) of|first (?:batch|"
    r"iteration|step) of|"
    r"when (?:\w+ ){0,3}new)\b[^.\n]{0,24}\bepochs?\b",
    r"\b(?:each|every|new|next) epochs?\b[^.\n]{0,24}\b(?:start|begin)\w*",
    r"epoch ?之间|每个 ?epoch ?(?:开始|之后|结束)|每一?轮(?:开始|结束)",
)
_PAUSES = words(
    r"\b(?:idle|paus\w*|wait\w*|delay\w*|gap|stall\w*|lag\w*|nothing happens)\b",
    r"\b(?:takes?|needs?|spends?|costs?|for|around|about) (?:\w+ ){0,3}(?:\d+|a few|several|some|long)[^.\n]{0,10}"
    r"(?:s|sec\w*|min\w*|time|while)\b",
    r"停顿|等待|卡(?:顿|住)|很久|空闲",
)
_OTHER_WORK = words(
    r"\bvalidat\w*|\bevaluat\w*|\bsav(?:e|es|ing)\b|\bcheckpoint\w*|\btest(?:s|ing)?\b|\bmemory\b|\bram\b|\bhang|"
    r"\bcrash|"
    r"\bgradual\w*|验证|保存|显存|内存"
)


def _find_boundary(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """The device waits where an epoch begins, and not within it."""
    del evidence
    said = together(text, _BOUNDARY, _PAUSES, without=_OTHER_WORK)
    if said and about_training(text) and not text.find(RAN_OUT):
        yield Finding(
            id="workers_recreated_each_epoch", confidence=0.8, severity="warning", evidence=(quote(said, "when"),)
        )


_RECOMPUTES = words(r"\b(?:gradient|activation)[-_ ]checkpoint\w*")
_WRITES = words(r"\b(?:sav(?:e|es|ed|ing)|checkpoint\w*|ckpts?|snapshots?)\b")
_OFTEN = words(
    r"\b(?:often|frequent\w*|(?:every|each) (?:\d+ |single |few )?(?:steps?|iter\w*|batch\w*|epochs?|time)|ages|"
    r"as soon as|"
    r"takes?|took|slow\w*)\b"
)
_COSTS = words(r"\boverhead\b|\bslow\w*|\bages\b|\bminutes?\b|\bhours?\b|\bbottleneck|\bmost of the time\b|\blonger\b")
_TROUBLED = words(r"\b(?:hang|hung|stuck|freez|crash|error|fail|timeout)\w*|Traceback|out of memory|No space")


def _find_writing(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """Writing what was trained costs more than it should."""
    del evidence
    said = together(text, _WRITES, _OFTEN, _COSTS)
    if said and about_training(text) and text.find(_TROUBLED) is None and text.find(_RECOMPUTES) is None:
        yield Finding(id="checkpoint_too_often", confidence=0.56, severity="warning", evidence=(quote(said, "saving"),))


_SHOWS = words(
    r"\b(?:tensorboard\w*|wandb|w&b|visdom|visuali[sz]\w*|summary ?writer|progress ?bar|tqdm|mlflow|matplotlib|"
    r"plot(?:s|ting)?|draw(?:s|ing)? (?:the |a |my )?(?:loss\w*|curves?|figures?|charts?|images?|boxes)|"
    r"display\w*|print(?:s|ing)?|logging|logger|html)\b"
)
_EACH = words(
    r"\b(?:each|every) (?:\w+ )?(?:step|iteration|iter|batch|time|loop|epoch)\b",
    r"\bin (?:the |a )?(?:for[- ])?loop\b",
    r"\bafter removal|\bremov\w+|\bdisabl\w+|\bwithout it\b",
)
_SLOWER = words(
    r"\bslow\w*|\bmore (?:and more )?time\b|\boverhead\b|\bbottleneck|\bpauses?\b|\btakes? (?:\w+ ){0,2}(?:long|"
    r"\d+)|\bfaster\b"
)

_TIME_GROWS = words(
    r"\btimes? (?:\w+ )?(?:increas\w*|grow\w*|rises?)",
    r"\bslower and slower|\blonger and longer",
)


def _find_showing(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """What is shown or logged in every step takes the time."""
    del evidence
    grows = together(text, _SHOWS, _TIME_GROWS)
    said = grows or together(text, _SHOWS, _EACH, _SLOWER)
    if said and (grows or about_training(text)) and text.find(_TROUBLED) is None:
        yield Finding(id="logging_each_step", confidence=0.57, severity="warning", evidence=(quote(said, "shown"),))


_ENDS = words(
    r"\b(?:program|process|script|training|train|run|python|job|terminal|console|cmd|kernel|it|model)\b[^.\n]{0,50}"
    r"\b(?:shuts? ?down|terminat\w*|exit(?:s|ed)?|quits?|dies|died|crash\w*|disappears?|aborts?|closes?|ends?|stops?|"
    r"stopped|interrupt\w*|break(?:s|ing)? (?:off|down))\b",
    r"(?:程序|进程|训练)[^。\n]{0,12}(?:退出|中断|停止|终止|闪退|挂了)",
)
_SILENT = words(
    r"\bwithout (?:\w+ ){0,3}(?:errors?|messages?|warnings?|traceback|exceptions?|information)\b",
    r"\bno (?:\w+ ){0,3}(?:errors?|messages?|warnings?|traceback|exceptions?|error information)\b",
    r"\bsilent\w*\b",
    r"没有?(?:任何)?(?:报错|错误|提示)",
)
_GOES_ON = words(r"still (?:in|on|occup|hold)|remains?|stuck|hang|util\w* (?:is |of )*0|video memory|gpu memory|显存")


_HANGS = words(r"\bhang\w*|\bhung\b|\bst[uo]ck\w*|\bfreez\w*|\bfrozen\b|dead ?lock|\bstall\w*|卡住|卡死")


def _find_silent_end(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """A program that ends without a word was ended from outside: most often the host had no memory left."""
    del evidence
    said = together(text, _ENDS, _SILENT)
    if said is None or not about_training(text) or text.find(RAN_OUT) or text.find(_GOES_ON) or text.find(_HANGS):
        return
    if text.find(words(r"segmentation|core dumped|\bSIG|Traceback \(|\w+Error:")) or text.find(DEVICE_MEMORY):
        return
    yield Finding(id="host_oom_killed", confidence=0.52, evidence=(quote(said, "ended"),))


_PREPARES = words(
    r"\baugment\w*|\b(?:data )?augs?\b|\balbu\w*|\bdecod(?:e|es|ing|er)\b|\b(?:image )?transforms?\b|"
    r"\bpre-?process\w*|\bresiz\w*|\b(?:reads?|reading|load\w*|open\w*)\b[^.\n]{0,30}(?:\bvideos?|\.?mp4|\bavi)\b|"
    r"数据增强|预处理|解码"
)
_TAKES_TIME = words(
    r"\bslow\w*|\bbottleneck\w*|\bdoubl\w*|\btwice\b|\blonger\b|\b(?:too much|more|wast\w+|most of the) time\b|"
    r"\b(?:cpu|cores?)\b[^.\n]{0,12}\b(?:intensive|heavy|bound)\b|\bcores?\b[^.\n]{0,24}\b(?:heavy load|fully|maxed|"
    r"busy|saturat\w*)\b",
    r"\btime[- ]consuming\b|\bcpu\b[^.\n]{0,40}\b(?:100|9\d) ?%|慢|耗时",
)
_MORE_FILL_CPU = words(
    r"\b(?:increas|more|rais|add|higher)\w* (?:\w+ ){0,3}(?:num_?)?workers?\b[^.\n]{0,60}\bcpus?\b[^.\n]{0,30}"
    r"\b(?:100|full\w*|max\w*|saturat\w*|too high|overload\w*)",
    r"num_?workers?[^。\n]{0,20}(?:再|加大|调大|增大|增加)[^。\n]{0,20}CPU[^。\n]{0,10}(?:高|满|100)",
)
_CPU_FULL = words(
    r"\b(?:all|every|each)\b[^.\n]{0,16}\b(?:cpus?|cores?)\b[^.\n]{0,30}\b(?:heav\w*|100|9\d|full\w*|busy|max\w*)\b",
    r"\bcpu[- ](?:intensive|heavy)\b",
)
_AT_TEST = words(r"\binference\b|\bdeploy\w*|\bgenerat\w*|\bbeam\b|\btokens?\b|\bautoregress\w*|\bvideo codec")


def _find_preparing(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """Decoding or augmenting the inputs takes the time."""
    del evidence
    said = together(text, _PREPARES, _TAKES_TIME, without=_AT_TEST) or text.find(_MORE_FILL_CPU)
    said = said or together(text, _PREPARES, _CPU_FULL, without=_AT_TEST, around=2)
    if said and about_training(text) and not text.find(RAN_OUT) and not text.find(_HANGS):
        yield Finding(id="decode_bound", confidence=0.57, severity="warning", evidence=(quote(said, "preparing"),))


_COMPILES = words(r"\btorch[. ]compile\b|\btorch_?inductor\b|\btorch\._?dynamo\b")


def _find_compiling(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """Compiled, and slow where it should be fast: it compiles again and again, or still."""
    del evidence
    said = together(text, _COMPILES, words(r"\bslow\w*|\bhours?\b|\bminutes\b|\blong\b"))
    if said and not text.find(words(r"Traceback \(|\bspeed-?up\b|\bnot slow")):
        yield Finding(id="compile_recompiles", confidence=0.5, severity="warning", evidence=(quote(said, "compiled"),))


_MANY_MACHINES = words(
    r"\b(?:[2-9]|two|three|four|several|multiple|multi|more|different|another|extra) ?-?(?:\w+ ){0,2}?-?(?:nodes?|"
    r"machines?|servers?)\b",
    r"--?nnodes\W{1,3}[2-9]",
    r"\bdistributed mode\b|\b[2-9] workers with\b",
    r"多机|两台|多节点",
)
_MANY_CARDS = words(
    r"\bddp\b|DistributedDataParallel|multi[-_ ]?gpus?|\b(?:[2-9]|two|four|eight|multiple|several|more) gpus\b|"
    r"\b[2-9] ?x (?:\w+ )?[A-Z]{0,3}\d{2,4}\w*\b|多卡"
)
_ALONE = words(
    r"\b(?:single|one|1|same)\b ?-?(?:\w+ ){0,2}?-?(?:nodes?|machines?|servers?|gpus?|cards?)\b",
    r"\b(?:than|over|to|of) (?:just |only )?(?:one|1)\b|\bn_?gpus?\W{1,3}1\b|\b1 ?x \w+|\bsingle[-_ ]?gpu\b|\b(?:on|"
    r"to|as|than|with) 1x ?\w+\b",
    r"\bstandalone\b|\bsingle worker\b",
    r"单机|单卡|单节点",
)
_NOT_FASTER = words(
    r"\bslow\w*",
    r"\b(?:speed|throughput|samples?\w*|it/s|performance|wps)\b[^.\n]{0,60}\b(?:fall|fell|drop\w*|decreas\w*|lower|"
    r"down)\b",
    r"\btimes?\b[^.\n]{0,40}\bincreas\w*|\blonger\b|\bworse\b|\binefficien\w*",
    r"(?:n't|\bnot) (?:\w+ ){0,3}(?:faster|any faster)\b|\b(?:speed|time|duration) (?:\w+ )?(?:is|stays?|"
    r"remains?) (?:\w+ )?(?:the )?same\b",
    r"\bno (?:\w+ )?(?:speed ?-?up|faster|gain|improvement|acceleration)|\bnot (?:\w+ )?(?:faster|accelerat\w*|"
    r"scal\w*)",
    r"慢",
)
_NO_GAIN = words(
    r"(?:n't|\bnot|\bno) (?:\w+ ){0,3}(?:faster|speed-?up)\b",
    r"\b(?:speed|time|duration) (?:\w+ )?(?:is|stays?|remains?) (?:\w+ )?(?:the )?same\b",
    r"(?:n't|\bnot|\bno) (?:\w+ ){0,4}(?:improvement|gain|benefit)\b",
)
_ADDED = words(
    r"\b(?:more|number of|increas\w+|add\w*|additional|extra) (?:\w+ ){0,3}(?:gpus?|nodes?|cards|machines|servers)\b",
    r"\b(?:gpus?|nodes?) (?:is |are )?(?:more than|increas\w*|added)\b",
)
_INPUT_SIDE = words(r"__getitem__|\bi/o\b|\bdecod\w*|\bvideos?\b|\bdisks?\b|\bstorage\b")
_NOT_OF_LINKS = words(
    r"\b(?<!Distributed)nn\.DataParallel\(|out of memory|num_workers ?=|data ?loader\b|imbalance\w*|\bhang\w*|\bstuck\b"
)


_SYNCS = words(
    r"\b(?:sync\w*|communicat\w*|all-?_?reduc\w*|gradients?)\b[^.\n]{0,40}\b(?:between|across|over)\b[^.\n]{0,12}"
    r"\b(?:nodes|machines|servers|network|ethernet|gpus)\b[^.\n]{0,40}\b(?:time|slow\w*|bottleneck|long\w*)\b"
)


def _find_far_apart(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """More machines, or cards with a process each, are slower than one: what they tell each other takes the time."""
    del evidence
    syncs = text.find(_SYNCS)
    alone = text.find(_ALONE) or text.find(_ADDED)
    if not about_training(text) or (syncs is None and (alone is None or text.find(_NOT_OF_LINKS))):
        return
    machines = syncs or together(text, _NOT_FASTER, _MANY_MACHINES)
    cards = (
        machines or together(text, _NOT_FASTER, _MANY_CARDS, _ALONE) or together(text, _NO_GAIN, _MANY_CARDS, around=2)
    )
    cards = cards or (None if text.find(_INPUT_SIDE) else together(text, _ADDED, _NOT_FASTER))
    if cards:
        sure = 0.7 if machines else 0.55
        yield Finding(id="communication_bound", confidence=sure, severity="warning", evidence=(quote(cards, "speed"),))


FINDERS = (
    text_finder("communication_bound", _find_far_apart),
    text_finder("decode_bound", _find_preparing),
    text_finder("compile_recompiles", _find_compiling),
    text_finder("training_on_cpu", _find_on_cpu),
    text_finder("extra_contexts_on_gpu0", _find_on_first),
    text_finder("oom_eval_accumulates_predictions", _find_kept_results),
    text_finder("workers_recreated_each_epoch", _find_boundary),
    text_finder("checkpoint_too_often", _find_writing),
    text_finder("logging_each_step", _find_showing),
    text_finder("host_oom_killed", _find_silent_end),
)

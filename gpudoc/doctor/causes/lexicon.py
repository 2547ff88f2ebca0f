"""Who is spoken of and what befalls it, in the words that people use: the vocabulary of the told complaints."""

from __future__ import annotations

from gpudoc.doctor.causes.sign import words

DEVICE_MEMORY = words(
    r"\b(?:gpus?|video|cuda|graphics?(?: card)?|card'?s?|device|display)[- ]?(?:\w+ )?(?:memor\w+|ram|mem)\b",
    r"\bvram\b",
    r"\b(?:memory|mem|ram)\b (?:\w+ ){0,3}(?:of|on|in|at|from) \W{0,3}(?:the |my |a |one |each |both |that )*\W{0,2}"
    r"(?:\w+ )?(?:gpus?\d?|graphics?|card|device|cuda)\b",
    r"GPU ?(?:内存|記憶體)",
    r"显存|顯存|显卡",
)
HOST_MEMORY = words(
    r"\b(?:cpu|host|system|main|physical|computer|machine|server|pc|node)(?:'s)?[- ]?(?:memory|ram|mem)\b",
    r"(?<!gpu)(?<!gpu\x20)(?<!cuda\x20)(?<!graphics\x20)(?<!video\x20)(?<!\dg)(?<!\dgb)\bram\b",
    r"\brss\b",
    r"\bswap\b",
    # what is set against the card's own memory is the host's
    r"\bmemory\b(?=[^.\n]{0,30}\b(?:but|while|whereas)\b[^.\n]{0,20}\b(?:gpu|graphics|video|vram)\b)",
    r"(?:memory|mem) (?:usage )?(?:of|on) (?:the |my |our )?(?:server|machine|computer|host|cpu|node|pc)\b",
    r"(?<!GPU)(?<!GPU\x20)(?:内存|內存|記憶體)",
)
GROWS = words(
    r"\b(?:grow|increas|ris(?:e|ing)|climb|creep|leak|accumulat|balloon|explod|pil(?:e|ing))\w*\b"
    r"(?! (?:the |my |your |its )?(?:batch|num|lr|learning|speed|workers?|size|epochs?))",
    r"\b(?:go|goes|going|went) (?:slowly |steadily )?up\b",
    r"\b(?:fill|build)(?:s|ing|ed)? up\b",
    r"more and more|higher and higher",
    r"\b(?:grew|rose|crept|climbed)\b",
    r"上涨|增长|增加|上升|泄[漏露]|越来越|(?:一直|不断|持续)(?:在)?涨",
)
# an end of the program, of whatever kind
ENDED = words(
    r"\bctrl\W{0,3}c\b",
    r"\b(?:kill|interrupt|terminat|abort|cancel|crash|exit|quit)\w*",
    r"\b(?:after|when|once|although|even though|if)\b[^.\n]{0,40}\b(?:stop|finish|end|complet|clos|done|over)\w*\b",
    r"\b(?:program|process|script|train\w*|job|run|code|execution|task|kernel|notebook)\b"
    r"[^.\n]{0,30}\b(?:stop|finish|end|complet|clos|done|over)\w*\b",
    r"\b(?:stop|finish|clos)\w* (?:the |my |a )?(?:program|process|script|train\w*|job|run|code|execution|task)",
    r"\b(?:previous|last|earlier|old) (?:run|process|job|training|experiment)",
    r"\bshut\w* (?:\w+ ){0,3}down\b|\bnew (?:console|terminal|session|shell)\b",
    r"终止|退出|中断|结束",
)
# what is kept from one step to the next is another matter than what outlives the program
WITHIN_RUN = words(
    r"\b(?:each|every|next|between|per) (?:\w+ )?(?:epoch|iteration|step|batch|fold|trial)\w*",
    r"\bdel \w+",
    r"\bafter (?:the |an? |one )?(?:\w+ )?(?:inference|forward|backward|function|cell|epoch|validation)\b",
)
STUCK = words(
    r"\bhang\w*\b|\bhung\w*\b",
    r"\bst[uo]ck\w*\b",
    r"\bfreez\w*|\bfrozen\b|\bfroze\b",
    r"dead ?lock\w*",
    r"\bstall\w*",
    r"\b(?:waits?|blocks?|runs?|stays?|waiting) (?:\w+ ){0,3}forever\b",
    r"\bno (?:\w+ )?progress\b|nothing (?:\w+ )?happens",
    r"(?:\bnot|n't|\bnever) (?:start|proceed|continue|move|progress|advance|finish|respond|return|ends?\b|complet)\w*",
    r"\b(?:just|simply) (?:stays?|stops?|sits?|waits?)\b|\bstops? there\b",
    r"\b(?:often|always|sometimes|suddenly|randomly) stops?\b|\bstops? (?:out ?put|print|log|updat|respond)\w*",
    r"\bno (?:more |further )?(?:output|logs?)\b|\blogs? stop",
    r"\bnot responding\b|unresponsive",
    r"卡住|卡死|挂起|不动|停住",
)
SEVERAL = words(
    r"\b(?:[2-9]|1\d|two|three|four|eight|several|multiple|multi|many|more than one|both|all(?: the)?) ?-?(?:x )?"
    r"(?:\w+ ){0,2}?-?gpus?\b",
    r"multi-?_?gpus?",
    r"(?:nproc_per_node|n_?gpus?|gpus|devices)\W{1,6}[2-9]\b",
    r"\b(?:ddp|nccl|fsdp|torchrun|deepspeed|horovod)\b|DataParallel|distributed",
    r"gpu_?ids?\W{1,4}0 ?,",
    r"多卡|双卡|两张卡|多 ?GPU",
)
# what is as long as somebody spoke: the longest so far decides how much memory is held from then on
AS_LONG = words(
    r"\b(?:asr|speech|utterances?|wav2vec\w*|hubert|whisper|audio|seq2seq|translation|dialogues?|summari[sz]ation)\b",
    "aishell|librispeech|common ?voice",
)

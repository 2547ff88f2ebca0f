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
FULL = words(
    r"\bfull\b|\bexhaust\w*|used up|maxed|overflow\w*|saturat\w*",
    r"\b(?:100|9\d) ?%",
    r"\b(?:run|runs|running|ran|runing) out\b|\bout of\b",
    r"(?:\bnot|n't|\bin)(?:sufficient| (?:have )?enough)",
    r"\b(?:consum|us|tak|eat|fill|occup)\w* (?:up )?(?:nearly |almost )?(?:all|the whole|the entire|everything)\b",
    r"\bexceed\w*|explod\w*|explosion|blow\w* up|\benormous|\bhuge\b",
    r"\b(?:over|more than|needs?|requires?|at least) \d+ ?g(?:i?b)?\b",
    r"\bnearly \d+ ?g(?:i?b)?\b|\bexcessive\b",
    r"\blimit\b|\bmax(?:imum|\.|ed)?\b",
    r"占满|占滿|爆|不足|溢出|耗尽",
)
# the verb alone says who did it: "it is killed", "Killed", and not "I killed it" or "kill -9"
KILLED = words(
    r"\b(?:is|was|are|were|be|been|being|gets?|got|getting|having) (?:\w+ ){0,2}killed\b",
    r"\bprocess(?:es)? (?:is |was |gets? |got |be )?kill(?:s|ed)?\b(?! by me)",
    r"\bkilled (?:during|when|while|in|after|at|before|on|without|immediately|automatically|suddenly|half)\b",
    r"[\"'`*:(]\W{0,2}killed\b",
    r"\bwhy (?:is it |was it )?killed\b",
    r"\b(?:prints?|says?|said|shows?|outputs?|just|only|message) \W{0,3}killed\b",
    r"killed by (?:signal|the (?:os|system|kernel)|oom)",
    r"\b(?:automatically|randomly|suddenly|it|system|os|linux|kernel) (?:\w+ ){0,2}kills? (?:a |the |my |"
    r"one )?(?:\w+ )?process",
    r"\bSIGKILL\b",
    r"被 ?(?:kill|杀|系统)",
)
BY_HAND = words(
    r"\bI (?:\w+ ){0,3}kill\w*",
    r"\bkill (?:-9|-15|it|them|the|this|that|all|my|process)",
    r"\b(?:have|had|has|need|needs|must|want|how) to kill",
    r"killed (?:it|them|all|my|by (?:me|hand|myself))\b",
    r"手动",
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
KEPT = words(
    r"(?:\bnot|n't|\bnever|\bno longer|without being|\bfail\w* to|unable to)\b (?:\w+ ){0,3}"
    r"(?:releas|free|clear|dealloc|drop|return|reclaim|recover|empt)\w*",
    r"\bstill (?:\w+ ){0,2}(?:hold|occup|us|alloc|tak|consum|keep|full|there)\w*",
    r"\b(?:remain|stay|keep)s? (?:\w+ ){0,3}(?:alloc|occup|used|full|hold|reserv|memory)\w*",
    r"\b(?:released|freed|cleared)\b[^.\n]{0,20}\bbut\b[^.\n]{0,50}\b(?:is|are|was|were|do|does) not\b",
    r"\borphan\w*|left-?over|\bzombie\w*",
    r"未释放|没有释放|不释放|无法释放|无法清除|残留|仍(?:然|会)?(?:有进程)?占",
)
# what is kept from one step to the next is another matter than what outlives the program
WITHIN_RUN = words(
    r"\b(?:each|every|next|between|per) (?:\w+ )?(?:epoch|iteration|step|batch|fold|trial)\w*",
    r"\bdel \w+",
    r"\bafter (?:the |an? |one )?(?:\w+ )?(?:inference|forward|backward|function|cell|epoch|validation)\b",
)
LOADS = words(
    r"\b(?:load|read|cach|build|prepar|pre-?process|generat|creat|pars|index|tokeni[sz])\w*[^.\n]{0,40}"
    r"\b(?:data\w*|images?|files?|samples?|features?|annotations?|corpus|vocab\w*|scenes?|batch\w*|frames?)\b",
    r"\b(?:large|big|huge|whole|entire|full) (?:\w+ ){0,2}(?:data ?sets?|corpus|images?|files?)\b",
    r"\b(?:data ?sets?|corpus)\b",
    r"数据",
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
ALONE_WORKS = words(
    r"\b(?:works?|runs?|trains?|fine|ok|okay|well|alright|normal\w*|without (?:\w+ ){0,2}(?:issues?|problems?|hang))\b"
    r"[^.\n]{0,60}\b(?:single|one|1)[- ]?(?:\w+ )?(?:gpu|card)\b",
    r"\b(?:single|one|1)[- ]?(?:\w+ )?(?:gpu|card)\b[^.\n]{0,60}\b(?:works?|fine|ok|okay|well|alright|normal\w*|runs?|"
    r"no (?:\w+ )?(?:issues?|problems?))\b",
    r"(?:nproc_per_node|n_?gpus?|gpus|devices)\W{1,6}1\b[^.\n]{0,60}\b(?:works?|fine|ok|alright|runs?|normal\w*)\b",
)
LOW_USE = words(
    r"\bgpus?\b[^.\n]{0,40}\b(?:idle|(?:mostly|always|often|just|only|stays?|at|is|to|back) (?:\w+ ){0,2}0 ?%?)\b"
    r"(?!\.\d|:)",
    r"\b(?:gpu|volatile)[- ]?(?:util\w*|usage|load|use)\b[^.\n]{0,50}(?:\b[0-4]?\d ?%|\blow\b|\bzero\b|\b0\b|"
    r"unstable|fluctuat\w*|jump\w*|oscillat\w*|"
    r"not (?:\w+ )?(?:stable|constant|full|high)|never|drops?)",
    r"\blow(?:er)?\b[^.\n]{0,20}(?:gpu )?util\w*",
    r"\bgpus?\b[^.\n]{0,12}\b(?:can ?not|can't|never|doesn't|does not|not) (?:\w+ )?(?:keep|maintain|reach|get|"
    r"have)\w* "
    r"(?:\w+ ){0,3}(?:high|full|100 ?%)[^.\n]{0,8}\butil",
    r"\b(?:under-?util\w*|poor(?:ly)? util\w*|under-?used)",
    r"\b(?:gpu|card)s?\b[^.\n]{0,30}(?:\bnot|n't|\bhardly|\bbarely|\brarely) (?:\w+ ){0,2}(?:heavily |fully |well )?"
    r"(?:used|utili[sz]ed|busy|loaded)",
    r"利用率[^。\n]{0,14}(?:低|不高|上不去|个位数|(?<!\d)[0-4]?\d ?%)|GPU-?Util ?太低|占用率?[^。\n]{0,6}(?:低|0)",
)
MACHINE = words(
    r"\b(?:machine|computer|system|pc|server|desktop|workstation|laptop|rig|ubuntu\d*|windows|linux|o/?s)\b",
    r"(?:电脑|机器|系统|服务器|主机)",
)
# what is as long as somebody spoke: the longest so far decides how much memory is held from then on
AS_LONG = words(
    r"\b(?:asr|speech|utterances?|wav2vec\w*|hubert|whisper|audio|seq2seq|translation|dialogues?|summari[sz]ation)\b",
    "aishell|librispeech|common ?voice",
)

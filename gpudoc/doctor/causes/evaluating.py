"""Device memory that runs out while the model is evaluated: graphs nobody needs, or results that are all kept."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.lexicon import DEVICE_MEMORY, GROWS, HOST_MEMORY
from gpudoc.doctor.causes.memory import RAN_OUT
from gpudoc.doctor.causes.sentences import together
from gpudoc.doctor.causes.sign import quote, text_finder, words
from gpudoc.doctor.model import Evidence, Finding, Skip
from gpudoc.facts.patterns import Pattern
from gpudoc.facts.readers.model import Mention, Text

_EVALUATION = words(
    r"\b(?:evaluat\w*|validat\w*|eval)(?:_?(?:loop|step|steps|phase|stage|epoch|set|loader|dataloader))?\b",
    r"\btrainer\.predict\(|\b_evaluate\(|\bin evaluate\b|\bevaluation_loop\b|\bprediction_step\b",
    "评估|验证|測試集|评测",
)
# their loops evaluate without gradients, so what remains is what they gather
_NO_GRADIENTS_THERE = words(
    r"\btransformers\b[^\n]{0,12}version|\bTrainingArguments\b|\bSeq2SeqTrain\w+|\btransformers/trainer\w*\.py",
    r"\bHuggingFace Trainer\b|\bHF Trainer\b|\bTrainer\(|\btrainer\.(?:train|evaluate|predict)\(",
    r"\bper_device_eval_batch_size\b|\beval_accumulation_steps\b|\bevaluation_strategy\b|\beval_strategy\b|\beval_steps?\b",
    r"\bcompute_metrics\b|\bpredict_with_generate\b",
    r"llama[-_ ]?factory|\bsimpletransformers\b|\bsentence[-_]transformers\b|\bSFTTrainer\b|\baxolotl\b|\btrl\b",
)
# how far an evaluation got: "94%", "812/1200"
_FAR = Pattern(r"\b(?:at|after|about|around|by|in|until|到|在)\s+(?:about |around |~)?(\d{1,2})\s?%")
_KEEPS_GRAPH = words(r"\bno_grad\b|\binference_mode\b|\brequires_grad\b|\bdetach\b|\bvolatile\b")
_OF_TRAINING = words(r"\b(?:dur\w+|in|while|at) (?:the )?training\b[^.\n]{0,30}\b(?:oom|out of memory)")


def _where(text: Text) -> Mention | None:
    return together(text, RAN_OUT, _EVALUATION, around=1)


def _find_gathered(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """Out of memory in an evaluation whose software keeps no graphs: it keeps every step's output on the device."""
    del evidence
    where = _where(text)
    library = text.find(_NO_GRADIENTS_THERE)
    if where is None or text.find(_OF_TRAINING) or text.find(_KEEPS_GRAPH):
        return
    far = text.find(_FAR)
    late = far is not None and int(far[1]) >= 10
    if library is not None or late:
        beside = library if library is not None else far
        assert beside is not None
        seen = tuple(dict.fromkeys((quote(where, "where"), quote(beside, "evaluated by"))))
        sure = 0.84 if library and late else 0.8 if library else 0.66
        yield Finding(id="oom_eval_accumulates_predictions", confidence=sure, evidence=seen)
    elif text.find(words(r"评估|验证|测试")):
        yield Finding(id="oom_eval_without_no_grad", confidence=0.74, evidence=(quote(where, "where"),))


_EACH_BATCH = words(
    r"\b(?:each|every|per|after|with) (?:\w+ )?(?:validat\w*|evaluat\w*|eval|val)\b|\bvalidation batch\w*"
)


def _find_climbing(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """Device memory that rises with each batch of an evaluation: each leaves its graph."""
    del evidence
    said = together(text, GROWS, _EACH_BATCH, words(r"\bmemory\b|\bvram\b|显存"))
    if said and text.find(RAN_OUT) and text.find(DEVICE_MEMORY) and not together(text, HOST_MEMORY, GROWS):
        yield Finding(id="oom_eval_without_no_grad", confidence=0.86, evidence=(quote(said, "memory"),))


_BEFORE = words(r"\b(?:py)?torch\b[^.\n]{0,12}\b0\.[123](?:\.\d+)?\b|\b0\.3(?:\.\d)?\b")
_SINCE = words(r"\b(?:py)?torch\b[^\n]{0,12}\b0\.4(?:\.\d)?\b|\b0\.4(?:\.\d)?\b")


def _find_volatile(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """Code for torch 0.3 under 0.4: what was marked volatile keeps its graph from then on."""
    del evidence
    ran_out, before, since = text.find(RAN_OUT), text.find(_BEFORE), text.find(_SINCE)
    if ran_out and before and since and before.start != since.start:
        seen = (quote(before, "works"), quote(since, "fails"), quote(ran_out, "error"))
        yield Finding(id="oom_eval_without_no_grad", confidence=0.74, evidence=tuple(dict.fromkeys(seen)))


FINDERS = (
    text_finder("oom_eval_accumulates_predictions", _find_gathered),
    text_finder("oom_eval_without_no_grad", _find_climbing),
    text_finder("oom_eval_without_no_grad", _find_volatile),
)

from __future__ import annotations

import pytest

from gpudoc.doctor.causes import lexicon
from gpudoc.facts.readers.model import Line, Text

SAID = [
    ("DEVICE_MEMORY", "the memory of my second GPU", "the memory of my old server"),
    ("DEVICE_MEMORY", "VRAM is at 23 GB", "RAM is at 23 GB"),
    ("HOST_MEMORY", "RAM climbs", "GPU RAM climbs"),
    ("HOST_MEMORY", "the system memory", "the GPU memory"),
    ("GROWS", "it keeps growing", "I cannot increase the batch size"),
    ("FULL", "swap is full", "swap is off"),
    ("KILLED", "after a minute it gets killed", "then I killed it"),
    ("BY_HAND", "I had to kill it", "it was killed"),
    ("ENDED", "after the script has finished", "while the script goes on"),
    ("ENDED", "pressed Ctrl+C", "pressed a key"),
    ("KEPT", "memory is never given back nor released", "memory is released"),
    ("WITHIN_RUN", "after each epoch", "after the run"),
    ("LOADS", "while it reads all images", "while it computes"),
    ("STUCK", "it doesn't proceed", "it proceeds"),
    ("SEVERAL", "on both GPUs", "on my GPU"),
    ("ALONE_WORKS", "with one GPU it works", "with one GPU it fails"),
    ("LOW_USE", "the GPU is mostly idle", "the GPU is busy"),
    ("LOW_USE", "GPU utilization is 12 %", "GPU utilization is 92 %"),
    ("MACHINE", "my workstation", "my model"),
    ("AS_LONG", "each utterance", "each image"),
    ("LOW_USE", "the GPU cannot keep a high utilization", "the GPU keeps a high utilization"),
]


@pytest.mark.parametrize(("name", "said", "other"), SAID)
def test_a_word_of_the_vocabulary_is_told_from_its_opposite(name, said, other):
    vocabulary = getattr(lexicon, name)
    assert Text((Line(1, said),)).find(vocabulary) is not None
    assert Text((Line(1, other),)).find(vocabulary) is None

import pytest

from gpudoc.doctor.causes import lexicon
from gpudoc.facts.readers.model import Line, Text

SAID = [
    ("DEVICE_MEMORY", "the memory of my second GPU", "the memory of my old server"),
    ("DEVICE_MEMORY", "VRAM is at 23 GB", "RAM is at 23 GB"),
    ("HOST_MEMORY", "RAM climbs", "GPU RAM climbs"),
    ("HOST_MEMORY", "the system memory", "the GPU memory"),
    ("GROWS", "it keeps growing", "I cannot increase the batch size"),
    ("ENDED", "after the script has finished", "while the script goes on"),
    ("ENDED", "pressed Ctrl+C", "pressed a key"),
    ("WITHIN_RUN", "after each epoch", "after the run"),
    ("STUCK", "it doesn't proceed", "it proceeds"),
    ("SEVERAL", "on both GPUs", "on my GPU"),
    ("AS_LONG", "each utterance", "each image"),
]


@pytest.mark.parametrize(("name", "said", "other"), SAID)
def test_a_word_of_the_vocabulary_is_told_from_its_opposite(name, said, other):
    vocabulary = getattr(lexicon, name)
    assert Text((Line(1, said),)).find(vocabulary) is not None
    assert Text((Line(1, other),)).find(vocabulary) is None

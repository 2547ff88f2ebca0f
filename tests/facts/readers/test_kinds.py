from __future__ import annotations

import pytest

from gpudoc.facts.readers import read


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('Traceback (most recent call last):\n  File "a.py", line 3', "traceback"),
        ("Epoch [3/10] step 20 loss: 2.31", "training_log"),
        ("$ pip install torch", "installer"),
        ("[rank0]: ValueError: no", "error"),
        ("what does nvidia-smi say", "gpu_report"),
    ],
)
def test_the_kind_of_a_text_is_named(text, kind):
    assert kind in read(text).recognised


def test_a_recipe_is_of_no_kind():
    assert read("Take two eggs and a pound of flour.\nBake for an hour.").recognised == ()

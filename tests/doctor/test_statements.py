from __future__ import annotations

import pytest

from gpudoc.doctor.likelihood import facts_of
from gpudoc.doctor.statements import stated
from gpudoc.facts.readers import read


@pytest.mark.parametrize(("text", "fact"), [
    ("Only one CPU core is busy while the GPU waits.", "one-core"),
    ("训练时只用了单核", "one-core"),
    ("Программа работает на одном ядре.", "one-core"),
    ("GPU 占用率一直很低", "low-use"),
    ("видеокарта простаивает", "low-use"),
    ("The images lie on NFS.", "slow-disk"),
    ("数据放在机械硬盘上", "slow-disk"),
    ("Each epoch takes longer than the one before.", "slower-with-time"),
    ("训练越来越慢", "slower-with-time"),
    ("эпохи идут всё дольше", "slower-with-time"),
    ("At first an epoch took 60 s, now it takes 240 s.", "times-grow"),
    ("The first epoch took 240 s, the second one 60 s.", "times-fall"),
    ("num_workers=0", "workers-few"),
    ("The optimizer is offloaded to the CPU.", "offloaded"),
])  # fmt: skip
def test_one_fact_is_one_fact_in_whatever_words_and_language(text, fact):
    reading = read(text)
    assert stated(reading.text)[fact].text.strip() == text
    assert f"stated:{fact}" in facts_of(reading)


def test_what_is_not_stated_is_no_fact():
    assert {"one-core", "low-use", "slow-disk", "times-grow"}.isdisjoint(stated(read("The run is done.").text))

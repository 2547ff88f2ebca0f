from __future__ import annotations

from gpudoc.doctor.causes.sign import Sign, finder, words
from gpudoc.doctor.model import Evidence
from gpudoc.facts.readers import read

SIGN = Sign(id="x", said=words("it broke"), sure=0.8, also=words("gpu"), unless=words("on purpose"))


def found(text, sign=SIGN):
    reading = read(text)
    return list(finder(sign).find(Evidence(source="file", machine=reading.machine, reading=reading)))


def test_a_sign_needs_its_words_and_those_beside_and_none_that_veto():
    (finding,) = found("first\nIt broke\nthe GPU")
    assert finding.confidence == 0.8
    assert [o.origin for o in finding.evidence] == ["line 2", "line 3"]
    assert not found("it broke")
    assert not found("the gpu: it broke on purpose")


def test_evidence_of_a_long_line_shows_the_words_that_matter():
    (finding,) = found("x" * 500 + " it broke " + "y" * 500 + " gpu")
    assert "it broke" in finding.evidence[0].value
    assert len(finding.evidence[0].value) <= 200


def test_the_same_words_are_compiled_once():
    assert words("a b", "c") is words("a b", "c")


def test_words_that_mean_something_in_training_only_need_its_context():
    sign = Sign(id="x", said=words("it stalls"), sure=0.8, in_training=True)
    assert found("epoch 3: it stalls", sign)
    assert not found("the bridge firewall: it stalls", sign)

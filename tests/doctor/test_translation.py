import json
from dataclasses import replace

import pytest

from gpudoc.doctor import document
from gpudoc.doctor.diagnose import diagnose
from gpudoc.doctor.examine import Request, examine, examine_text
from gpudoc.doctor.model import Evidence
from gpudoc.doctor.translation import translate
from gpudoc.errors import GpudocError
from gpudoc.knowledge.translations import LANGUAGES
from tests.machines.built import gpu, machine

SLOW = "我的3090训练时GPU利用率只有10%左右，CPU占用也不高，训练特别慢，num_workers=0，怎么办？"
MEMORY = (
    "Обучение падает, помогите\n"
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 24.00 GiB total capacity; "
    "22.10 GiB already allocated; 1.20 GiB free; 22.30 GiB reserved in total by PyTorch)\n"
)


def report_of(text: str, **options: str):
    return examine(Request(texts=(text,), **options))


def test_a_question_in_chinese_is_answered_in_chinese_with_its_fix():
    report = report_of(SLOW)
    said = translate(report).findings[0]
    assert report.language == "zh"
    # the loader, in as narrow words as the text allows
    assert (said.id, said.title) in (
        ("dataloader_bottleneck", "数据加载拖慢了训练"),
        ("too_few_workers", "数据加载进程（num_workers）太少"),
    )
    assert "让 gpudoc 测量并选出合适的数据加载进程数和预取设置。" in [step.say for step in said.fix]
    assert [step.run for step in said.fix] == [step.run for step in report.findings[0].fix]
    assert said.evidence == report.findings[0].evidence


def test_the_document_keeps_its_english_fields_and_says_the_same_beside_them():
    report = report_of(MEMORY)
    kept = json.loads(json.dumps(document.dump(report)))
    first = kept["findings"][0]
    assert (kept["language"], first["id"]) == ("ru", "oom_capacity")
    assert first["title"].isascii()
    assert all(step["say"].isascii() for step in first["fix"])
    assert first["translated"]["title"].startswith("Нехватка видеопамяти")
    assert len(first["translated"]["fix"]) == len(first["fix"])
    assert first["translated"]["fix"][0].startswith("Уменьшите микробатч до 50%")
    # a saved one is read again in the same language, and the words of a stranger in none
    read = document.load(kept)
    assert translate(read).findings[0].title == first["translated"]["title"]
    first["translated"]["title"] = "rm -rf /"
    assert translate(document.load(kept)).findings[0].title != "rm -rf /"


def test_an_english_document_says_nothing_twice():
    kept = document.dump(report_of("RuntimeError: CUDA out of memory"))
    assert kept["language"] == "en"
    assert not any("translated" in finding for finding in kept["findings"])


def test_a_document_in_a_language_that_nobody_knows_is_refused():
    kept = {**document.dump(report_of(SLOW)), "language": "xx"}
    with pytest.raises(GpudocError, match="'xx' is not one of en, zh, ru"):
        document.load(json.loads(json.dumps(kept)))


def test_the_language_that_was_asked_for_beats_that_of_the_text():
    assert report_of(SLOW, language="en").language == "en"
    assert translate(report_of("CUDA out of memory", language="zh")).findings[0].title.startswith("显存不足")


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_machine_is_described_in_the_language_that_was_asked_for(language):
    report = diagnose(Evidence(source="machine", machine=machine(gpu(0), replace(gpu(1), lost=True, nvml_code=15))))
    found = {one.id: one for one in translate(replace(report, language=language)).findings}
    lost = found["gpu_fallen_off_bus"]
    assert not lost.title.isascii()
    assert not any(step.say.isascii() for step in lost.fix)
    assert lost.cards == report.findings[0].cards
    assert not any(title.isascii() for title in lost.explains if title in found)


def test_ten_megabytes_with_a_question_at_the_end_are_answered_in_its_language():
    log = "".join(f"step {step} loss 0.5 time 0.2s\n" for step in range(330_000))
    data = f"{log}torch.cuda.OutOfMemoryError: CUDA out of memory.\n跑到这里就报显存不足，请问怎么解决？\n".encode(
        "gbk"
    )
    assert len(data) > 9_000_000
    report = examine_text([("train.log", data)])
    assert (report.language, report.findings[0].id) == ("zh", "oom_capacity")

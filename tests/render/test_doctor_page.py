from dataclasses import replace

from gpudoc.doctor.diagnose import diagnose
from gpudoc.doctor.model import Evidence, Observation
from gpudoc.render.doctor_page import render_page
from tests.doctor.causes.judge import report_of
from tests.machines.built import gpu, machine

from .test_page import read, words

HEALTHY = diagnose(Evidence(source="machine", machine=machine(gpu(0), gpu(1))))
BROKEN = report_of("NVRM: Xid (PCI:0000:3b:00): 109, pid=1, CTXSW_TIMEOUT")


def test_the_verdict_is_the_badge_and_the_root_cause_stands_first_with_its_commands():
    page = render_page(BROKEN)
    assert '<p class="badge broken">✗ broken</p>' in page
    assert "<pre># disruptive\nsudo nvidia-smi --gpu-reset" in page
    first = BROKEN.findings[0]
    text = words(page)
    assert (
        text.index(first.title)
        < text.index(f"{first.id} · {first.confidence:.0%} sure")
        < text.index("How it is known")
    )
    assert f"How it is known {len(first.evidence)} observation" in text


def test_the_gpus_and_what_is_known_of_them():
    page = render_page(HEALTHY)
    assert '<td class="k">H100 80GB HBM3</td>' in page
    assert "GPU each temperature_slowdown_c 87" in words(page)
    assert '<dt>GPUs</dt><dd class="value">2</dd>' in page


def test_checks_are_folded_by_area_and_told_in_sentences_with_one_reason_for_many():
    page = render_page(HEALTHY)
    reader = read(page)
    assert reader.tags.count("details") > 3
    assert not [name for name, _ in reader.attributes if name == "open"]
    text = words(page)
    passed = [name for name in HEALTHY.passed if name == "driver_too_old"]
    assert "Ruled out" in text
    assert not passed or "The NVIDIA driver is too old for this build of torch (driver_too_old)" in text
    reasons = {skipped.because for skipped in HEALTHY.skipped}
    assert all(f"Not checked, because {reason}" in text for reason in reasons)
    named = sum(f"({name})" in text for name in (*HEALTHY.passed, *(one.id for one in HEALTHY.skipped)))
    assert named == len(HEALTHY.passed) + len(HEALTHY.skipped)


def test_what_no_cause_explains_is_said():
    odd = replace(BROKEN, findings=(), verdict="unknown", unexplained=(Observation("line", "<b>boom</b>", "line 3"),))
    page = render_page(odd)
    assert "The cause is not known" in page
    assert "&lt;b&gt;boom&lt;/b&gt; (line 3)" in page
    assert "! unknown" in page


def test_many_findings_and_unlikely_ones_are_folded():
    first = BROKEN.findings[0]
    many = replace(BROKEN, findings=(*(first,) * 7, replace(first, confidence=0.04)))
    text = words(render_page(many))
    assert "Further findings 3" in text
    assert "Much less likely 1" in text
    assert text.index("Further findings") < text.index("4% sure")


def test_a_page_in_chinese_says_so_and_speaks_it_and_its_commands_are_as_ever():
    english = report_of(
        "RuntimeError: CUDA error: no kernel image is available for execution on the device\ntorch 2.3.0\n"
    )
    asked = replace(report_of("torch.cuda.OutOfMemoryError: CUDA out of memory"), language="zh")
    page = render_page(asked)
    assert '<html lang="zh">' in page
    assert '<html lang="en">' in render_page(english)
    text = words(page)
    assert "显存不足：这个程序需要的显存超过了显卡的容量" in text
    assert text.index("有故障") < text.index("原因") < text.index("判断依据")
    assert "expandable_segments:True" in text
    assert asked.findings[0].title not in text


def test_the_figures_behind_the_cause_of_a_text_are_open():
    reader = read(render_page(BROKEN))
    assert [name for name, _ in reader.attributes if name == "open"] == ["open"]


def test_what_is_only_to_know_is_not_counted_as_a_problem():
    one = replace(BROKEN.findings[0], severity="info")
    text = words(render_page(replace(BROKEN, findings=(one,), verdict="healthy")))
    assert "problems found 0 0 broken, 0 warnings" in text

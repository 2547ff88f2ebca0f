"""Absence is never health: each fact that a check of one GPU declares is taken away in turn, and the check is skipped."""

import ast
from dataclasses import replace
from pathlib import Path
from typing import Union, get_type_hints

import pytest

from gpudoc.doctor.causes import gpu_counts, gpu_health, gpu_links, gpu_use, per_gpu
from gpudoc.doctor.causes.per_gpu import GpuCheck, Seen, Sign, flag, paths_of, read
from gpudoc.doctor.diagnose import diagnose
from gpudoc.doctor.model import Evidence, Skip
from gpudoc.facts.model import NOT_READ, NOT_SUPPORTED, Absent, Gpu, Link
from gpudoc.facts.readers.model import Reading
from tests.machines.built import ask, changed, gpu, machine

CHECKS = (*gpu_health.CHECKS, *gpu_links.CHECKS, *gpu_use.CHECKS)
SIGNS = [(check, sign) for check in CHECKS for sign in check.signs]
# finders of single GPUs that compare one with others, and the facts that each of them reads
OTHERS = {
    "oom_other_process": ("memory_total_bytes", "memory_free_bytes", "processes"),
    "nvlink_error": ("name", "virtualization", "nvlink_active", "nvlink_total"),
    "mig_enabled_no_instance": ("mig_enabled",),
    "compute_mode_exclusive": ("compute_mode",),
    "gpu_newer_than_wheel_archs": ("capability",),
    "gpu_older_than_wheel_archs": ("capability",),
}
DECLARED = sorted(
    {(check.cause, path) for check, sign in SIGNS for path in sign.paths}
    | {(check.cause, path) for check in CHECKS if check.only is not None for path in paths_of(check.only)}
    | {(cause, path) for cause, paths in OTHERS.items() for path in paths}
)


def well(cause: str):
    """Two GPUs on which the cause can be looked for in full."""
    if cause == "vgpu_unlicensed":
        return machine(*(gpu(i, virtualization="vgpu", licensed=True) for i in range(2)))
    return machine(gpu(0), gpu(1))


def report_on(facts):
    return diagnose(Evidence(source="machine", machine=facts))


@pytest.mark.parametrize(("cause", "path"), DECLARED)
def test_without_one_of_its_facts_a_check_never_passes_and_names_the_gpu(cause, path):
    report = report_on(changed(well(cause), f"gpus.1.{path}", Absent("no permission")))
    assert cause not in report.passed
    (because,) = [skip.because for skip in report.skipped if skip.id == cause]
    assert "GPU 1: " in because
    assert f"{path}: no permission" in because


CAUSES = {cause for cause, _ in DECLARED}


def test_checks_pass_with_all_their_facts_and_none_without_a_gpu_or_of_one_that_nothing_is_known_of():
    for cause in CAUSES:
        assert cause in report_on(well(cause)).passed
    unknown = report_on(machine(gpu(0), Gpu(index=1)))
    assert not CAUSES & set(unknown.passed)
    assert [f for f in unknown.findings if f.severity != "info"] == []
    assert not {check.cause for check in CHECKS} & set(report_on(changed(machine(), "gpus", ())).passed)


@pytest.mark.parametrize(("check", "sign"), SIGNS, ids=lambda x: getattr(x, "cause", "-".join(getattr(x, "paths", ()))))
def test_a_sign_declares_each_fact_with_the_type_that_it_has(check, sign):
    declared = [kind for name, kind in get_type_hints(sign.judge).items() if name != "return"]
    assert len(declared) == len(sign.paths)
    for path, kind in zip(sign.paths, declared, strict=True):
        owner, name = (Link, path.removeprefix("link.")) if path.startswith("link.") else (Gpu, path)
        assert get_type_hints(owner)[name] == Union[kind, Absent], path


@pytest.mark.parametrize("module", [gpu_health, gpu_links, gpu_use, gpu_counts, per_gpu], ids=lambda m: m.__name__)
def test_no_check_of_a_gpu_has_a_default_for_an_absent_fact(module):
    tree = ast.parse(Path(module.__file__).read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert not imported & {"value", "known"}


CHECK = GpuCheck(
    cause="x",
    signs=(
        flag("rows_remap_failed", Seen(text="failed", severity="broken", title="it failed")),
        flag("repair_pending", Seen(text="pending", title="it is pending")),
    ),
)


def test_findings_of_several_gpus_become_one_that_names_them_all():
    facts = machine(gpu(0), gpu(1, repair_pending=True), gpu(2, rows_remap_failed=True, repair_pending=True))
    (finding,) = ask(CHECK.find, facts)
    assert (finding.severity, finding.title) == ("broken", "GPU 2 (and 1 more): it failed")
    assert [card.index for card in finding.cards] == [1, 2]
    assert [o.fact.split(" (")[0] for o in finding.evidence] == ["GPU 1", "GPU 2", "GPU 2"]
    assert "0000:11:00.0" in finding.evidence[0].fact


def test_a_text_is_judged_by_the_same_signs_with_its_own_lines_and_severity():
    gpus = (gpu(0, repair_pending=Absent("not read")), gpu(1, repair_pending=True, pci_address="00000000:3B:00.0"))
    reading = Reading(origins={"gpus.1.repair_pending": "line 7"})
    told = Evidence(source="file", machine=machine(*gpus), reading=reading)
    (finding,) = CHECK.text_finder().find(told)
    assert (finding.severity, finding.title) == ("warning", "GPU 1: it is pending")
    assert [observation.origin for observation in finding.evidence] == ["line 7"]
    # the order of a text is no index
    assert [(card.pci_address, card.index) for card in finding.cards] == [("0000:3b:00.0", NOT_READ)]
    (worse,) = replace(CHECK, told="broken").find_in_text(told)
    assert worse.severity == "broken"
    assert list(CHECK.find_in_text(replace(told, source="machine"))) == []


def test_a_gpu_that_was_not_checked_is_told_beside_one_that_has_the_fault():
    facts = machine(gpu(0, repair_pending=True), gpu(1, repair_pending=Absent("no permission")))
    finding, skip = ask(CHECK.find, facts)
    assert (finding.id, skip) == ("x", Skip("GPU 1: repair_pending: no permission"))


UNREAD, NONE_HAS = {"repair_pending": Absent("no permission")}, {"repair_pending": Absent(NOT_SUPPORTED)}
DOUBTFUL = GpuCheck(cause="x", signs=(Sign(lambda lost: Absent("who knows")),))


@pytest.mark.parametrize(
    ("check", "facts", "because"),
    [
        # GPUs that lack the same fact are named together
        (CHECK, machine(gpu(0, **UNREAD), gpu(1), gpu(2, **UNREAD)), "GPU 0, 2: repair_pending: no permission"),
        # what no GPU of the kind has counts only when it is all there is to see
        (CHECK, machine(gpu(**NONE_HAS)), ""),
        (CHECK, machine(gpu(**NONE_HAS, rows_remap_failed=Absent(NOT_SUPPORTED))), f"GPU 0: rows_remap_failed: {NOT_SUPPORTED}"),
        (DOUBTFUL, machine(), "GPU 0: who knows"),
    ],
)  # fmt: skip
def test_what_cannot_be_judged_is_skipped_with_the_gpus_and_the_reason(check, facts, because):
    assert ask(check.find, facts) == ([Skip(because)] if because else [])


def test_facts_are_read_by_name_and_those_of_the_link_by_its_prefix():
    assert read(gpu(), lambda link_width, link_width_max: (link_width, link_width_max)) == (16, 16)
    assert read(gpu(link=Link(width=16)), lambda link_width, link_width_max: 1) == Absent("link.width_max: not read")


def test_a_finder_that_is_no_gpu_check_is_walked_by_its_own_list():
    own = [
        finder.id for finder in gpu_links.FINDERS if not isinstance(getattr(finder.find, "__self__", None), GpuCheck)
    ]
    assert set(own) <= set(OTHERS)

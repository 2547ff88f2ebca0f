from __future__ import annotations

from dataclasses import replace

import pytest

from gpudoc.doctor.causes.kernel_events import findings, unknown_numbers
from gpudoc.doctor.diagnose import diagnose
from gpudoc.doctor.model import Evidence, Finding, Report
from gpudoc.facts import kernel_log
from gpudoc.facts.model import Absent, Driver, Machine
from gpudoc.knowledge.xids import all_sxids, all_xids
from tests.doctor.causes.judge import report_of
from tests.machines.built import changed, gpu, machine

XID = "[ 900.5] NVRM: Xid (PCI:0000:11:00): {}, pid=1234, name=python"
SXID = "[ 900.5] nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): {}, Link 28 something"
RECOVERY = XID.format(154) + ", GPU recovery action changed from 0x0 (None) to {}"


def live(*lines: str, facts: Machine | None = None) -> Report:
    """The judgement of a machine with two GPUs, of which the log names the second unless told otherwise."""
    whole = replace(facts or machine(gpu(0), gpu(1)), kernel_log=kernel_log.parse(lines))
    report = diagnose(Evidence(source="machine", machine=whole))
    assert not report.crashed
    return report


def asking(action: int) -> Machine:
    """The machine whose second GPU asks for this recovery now."""
    return changed(machine(gpu(0), gpu(1)), "gpus.1.recovery_action", action)


def only(report: Report) -> Finding:
    (finding,) = [f for f in report.findings if f.severity != "info"] or report.findings
    return finding


ROWS = [
    *(pytest.param(row, XID.format(row.code), id=f"xid {row.code}") for row in all_xids()),
    *(pytest.param(row, SXID.format(row.code), id=f"sxid {row.code}") for row in all_sxids()),
]


@pytest.mark.parametrize(("row", "line"), ROWS)
def test_every_number_of_the_catalogue_has_an_answer_and_the_same_live_and_in_a_text(row, line):
    told, here = report_of(line), live(line)
    if row.severity == "notice":
        assert told.verdict == here.verdict == "healthy"
        assert [f.severity for f in told.findings if f.confidence > 0.3] in (["info"], [])
        return
    finding = only(told)
    assert told.verdict in ("broken", "warning")
    assert finding.fix
    if row.kind == "application":
        assert here.verdict == "healthy"
        return
    assert [f.id for f in here.findings] == [finding.id]
    assert here.verdict in ("broken", "warning")
    assert here.findings[0].fix


@pytest.mark.parametrize("line", [XID.format(9999), XID.format(500), SXID.format(99999)])
def test_a_number_that_no_table_knows_is_unknown_and_never_healthy(line):
    for report in (report_of(line), live(line)):
        assert report.verdict == "unknown"
        assert "9999" in report.unexplained[0].value or "500" in report.unexplained[0].value
        assert len(report.deciding_facts) == 2


def test_a_number_in_prose_is_no_line_of_the_driver():
    assert not unknown_numbers(Evidence(source="file", machine=report_of("we saw Xid 500 times").machine))
    assert "gpu_error_reported" not in [f.id for f in report_of("torch: Xid 12 times in the log").findings]
    meant = report_of("our training node shows Xid 109 since the update")
    assert (meant.verdict, meant.findings[0].title[:7]) == ("broken", "Xid 109")
    assert meant.findings[0].confidence == 0.5


@pytest.mark.parametrize(
    ("wanted", "severity", "says"),
    [
        ("0x1 (GPU Reset Required)", "broken", "--gpu-reset -i 1"),
        ("0x2 (Node Reboot Required)", "broken", "sudo reboot"),
        ("0x3 (Drain P2P)", "broken", "copy between GPUs"),
        ("0x4 (Drain and Reset)", "broken", "--gpu-reset -i 1"),
        ("0x5 (Recover IMEX Domain)", "broken", "nvidia-fabricmanager"),
    ],
)
def test_xid_154_asks_for_what_its_message_names(wanted, severity, says):
    finding = only(live(RECOVERY.format(wanted), facts=asking(int(wanted[2]))))
    assert (finding.id, finding.severity) == ("gpu_needs_reset", severity)
    assert says in " ".join(f"{step.say} {step.run}" for step in finding.fix)
    assert only(report_of(RECOVERY.format(wanted))).id == "gpu_needs_reset"


def test_an_xid_154_whose_message_was_cut_off_is_not_healthy():
    assert report_of(XID.format(154)).verdict == live(XID.format(154)).verdict == "warning"


def test_a_recovery_that_was_taken_back_is_over():
    done = XID.format(154) + ", GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
    assert live(RECOVERY.format("0x1 (GPU Reset Required)"), done).verdict == "healthy"
    assert live(RECOVERY.format("0x1 (GPU Reset Required)")).verdict == "healthy"
    assert live(RECOVERY.format("0x2 (Node Reboot Required)")).verdict == "broken"
    assert live(RECOVERY.format("0x1 (GPU Reset Required)"), facts=asking(1)).verdict == "broken"


def test_a_fault_is_over_on_a_machine_whose_gpu_is_well_and_is_not_when_the_machine_says_so():
    line = XID.format(79)
    assert only(live(line)).severity == "warning"
    assert only(live(line, facts=machine(gpu(0), gpu(1, lost=True, nvml_code=15)))).severity == "broken"
    assert only(live(line, facts=changed(machine(gpu(0), gpu(1)), "gpus.1.recovery_action", 2))).severity == "broken"
    silent = replace(machine(), gpus=Absent("no answer within 8 s: nvmlInit"))
    assert live(line, facts=silent).findings[0].id == "gpu_fallen_off_bus"
    assert live(line, facts=silent).verdict == "broken"
    hanging = replace(silent, driver=Driver(), probe_failures={"nvml": "no answer within 8 s: nvmlInit"})
    assert live(line, facts=hanging).findings[0].id == "gpu_fallen_off_bus"
    not_asked = replace(machine(), gpus=Absent("nvidia-ml-py cannot be imported"), driver=Driver())
    fallen = next(f for f in live(line, facts=not_asked).findings if f.id == "gpu_fallen_off_bus")
    assert fallen.severity == "warning"
    assert only(live(line, RECOVERY.format("0x2 (Node Reboot Required)"))).severity == "broken"
    assert report_of(line).verdict == "broken"


def test_a_switch_s_line_says_itself_whether_it_is_fatal():
    fatal = SXID.format("20034, Fatal")
    assert (only(live(fatal)).id, only(live(fatal)).severity) == ("nvswitch_error", "broken")
    assert report_of(fatal).verdict == "broken"
    assert report_of(SXID.format("28006, Non-fatal")).verdict == "warning"
    assert report_of(SXID.format("99999, Fatal")).verdict == "broken"


def test_a_switch_is_no_gpu_that_a_command_could_name():
    finding = only(report_of(SXID.format("20034, Fatal")))
    assert finding.cards == ()
    assert not any("0000:c1" in step.run for step in finding.fix)


def test_blackwell_s_nvlink_numbers_are_as_bad_as_their_word():
    line = "NVRM: Xid (PCI:0000:11:00): 145, RLW_REMAP {} XC1 i0 Link 00 (0x00000082 0x00000004 0x0 0x0 0x0 0x0 0x0)"
    assert only(report_of(line.format("Nonfatal"))).severity == "warning"
    assert only(report_of(line.format("Fatal"))).severity == "broken"


def test_the_card_is_the_one_that_the_line_names():
    assert [card.index for card in only(live(XID.format(48))).cards] == [1]
    (card,) = only(report_of(XID.format(48))).cards
    assert (card.pci_address, isinstance(card.index, Absent)) == ("0000:11:00.0", True)


def test_what_the_kernel_says_of_the_bus_counts_when_uncorrected_and_at_a_gpu():
    for severity, address, expected in (
        ("Uncorrectable (Fatal)", "0000:10:00.0", "pcie_bus_errors"),
        ("Corrected", "0000:10:00.0", None),
        ("Uncorrectable (Fatal)", "0000:99:00.0", None),
    ):
        line = f"[ 7.1] pcieport {address}: PCIe Bus Error: severity={severity}, type=Transaction Layer"
        named = [(f.id, f.severity) for f in live(line).findings]
        assert named == ([(expected, "warning")] if expected else []), (severity, address)


def test_an_uncorrected_error_of_the_bus_is_one_cause_live_and_in_a_text():
    line = "[ 7.1] nvidia 0000:10:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer"
    assert only(live(line)).id == only(report_of(line)).id == "pcie_bus_errors"


@pytest.mark.parametrize(
    ("cause", "lines"),
    [
        ("gpu_bar_not_assigned", ("[ 6.0] NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:",
                                  "[ 6.0] NVRM: BAR1 is 0M @ 0x0 (PCI:0000:10:00.0)",
                                  "[ 6.1] NVRM: GPU 0000:10:00.0: RmInitAdapter failed! (0x24:0x65:1589)")),
        ("kernel_module_kind_wrong", ("[ 6.0] NVRM: The NVIDIA GPU 0000:10:00.0 (PCI ID: 10de:2b85)",
                                      "[ 6.0] NVRM: installed in this system requires use of the NVIDIA open kernel modules.",
                                      "[ 6.1] NVRM: GPU 0000:10:00.0: RmInitAdapter failed! (0x22:0x56:884)")),
        ("kernel_module_kind_wrong", ("[ 6.0] NVRM: installed in this system is not supported by open",
                                      "[ 6.0] NVRM: nvidia.ko because it does not include the required GPU")),
    ],
)  # fmt: skip
def test_an_adapter_that_does_not_start_is_not_always_broken_hardware(cause, lines):
    assert report_of("\n".join(lines)).findings[0].id == cause
    told = findings(Evidence(source="file", machine=Machine(kernel_log=kernel_log.parse(lines))))
    assert {finding.id for finding in told} == {cause}
    facts = changed(changed(machine(), "pci.0.driver", Absent("no driver bound")), "driver.nvml_code", 9)
    report = live(*lines, facts=replace(facts, gpus=Absent("NVML did not start")))
    assert (report.findings[0].id, report.findings[0].severity) == (cause, "broken")


def test_a_channel_that_was_cleared_away_follows_the_event_that_began_it():
    line = "NVRM: Xid (PCI:0000:11:00): 45, pid=81, name=python3, Ch 00000003 caused by previous Xid 145"
    assert only(live(line)).id == only(report_of(line)).id == "nvlink_error"
    both = report_of(f"{XID.format(48)}\n{XID.format(45)}")
    assert [f.id for f in both.findings if f.confidence > 0.3] == ["gpu_ecc_error"]


def test_programs_of_earlier_jobs_are_no_finding_of_a_machine():
    assert live(*(XID.format(code) for code in (13, 31, 43, 45))).findings == ()


def test_a_machine_passes_no_check_that_could_not_fail():
    passed = live().passed
    assert "gpu_error_reported" in passed
    assert "illegal_memory_access" not in passed


def test_each_event_is_judged_once():
    assert len(findings(Evidence(source="file", machine=Machine(kernel_log=kernel_log.parse([XID.format(62)]))))) == 1


def test_the_reboot_that_the_driver_asks_for_is_the_advice_of_the_fault_itself():
    lines = (XID.format(48), RECOVERY.format("0x2 (Node Reboot Required)"))
    for report in (live(*lines, facts=asking(2)), report_of("\n".join(lines))):
        runs = [step.run for step in report.findings[0].fix]
        assert report.findings[0].id == "gpu_ecc_error"
        assert "sudo reboot" in runs
        assert not any("--gpu-reset" in run for run in runs)


def test_a_reset_is_for_the_card_with_the_worse_fault_only():
    contained = XID.format(94).replace("0000:11", "0000:10")
    report = live(XID.format(95), RECOVERY.format("0x1 (GPU Reset Required)"), contained, facts=asking(1))
    runs = [step.run for step in report.findings[0].fix]
    assert "sudo nvidia-smi --gpu-reset -i 1" in runs


def test_two_numbers_do_not_share_their_advice():
    other = XID.format(39).replace("0000:11", "0000:10")
    report = live(XID.format(109), other, facts=asking(1))
    (finding,) = [f for f in report.findings if f.id == "gpu_error_reported"]
    assert finding.title.startswith("Xid 109")
    assert [step.run for step in finding.fix if "--gpu-reset" in step.run] == ["sudo nvidia-smi --gpu-reset -i 1"]


def test_ten_thousand_lines_of_one_fault_are_judged_as_a_few():
    many = kernel_log.parse([XID.format(62)] * 10_000)
    assert len(findings(Evidence(source="file", machine=Machine(kernel_log=many)))) == 6


def test_an_error_that_was_contained_needs_no_reset_at_once():
    contained = report_of(XID.format(94)).findings[0]
    says = [step.say for step in contained.fix]
    assert any("the others go on" in say for say in says)
    assert any(say.startswith("Reset ") and " when its jobs have ended" in say for say in says)
    beside = report_of(f"{XID.format(94)}\n{XID.format(48)}").findings[0]
    assert not any("the others go on" in step.say for step in beside.fix)


def test_what_nvlink_got_over_is_not_answered_with_a_reset():
    line = "NVRM: Xid (PCI:0000:11:00): 146, TLW_CTRL {} XC0 i0 Link 03 (0x00000009 0x00000001 0x0 0x0 0x0 0x0 0x0)"
    assert not any(step.disruptive for step in only(report_of(line.format("Nonfatal"))).fix)
    assert any(step.disruptive for step in only(report_of(line.format("Fatal"))).fix)

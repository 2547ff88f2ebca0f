from dataclasses import replace

import pytest

from gpudoc.doctor.causes.kernel_events import findings, unknown_numbers
from gpudoc.doctor.diagnose import diagnose
from gpudoc.doctor.model import Evidence, Finding, Report
from gpudoc.facts import kernel_log
from gpudoc.facts.model import Absent, Driver, Machine
from gpudoc.knowledge.xids import all_sxids, all_xids
from tests.doctor.causes.judge import report_of, verdict_is
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
    assert meant.findings[0].confidence < report_of(XID.format(109)).findings[0].confidence


RESET, REBOOT = RECOVERY.format("0x1 (GPU Reset Required)"), RECOVERY.format("0x2 (Node Reboot Required)")
TAKEN_BACK = XID.format(154) + ", GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
FATAL = "Uncorrectable (Fatal)"
BUS = "[ 7.1] {} {}: PCIe Bus Error: severity={}, type=Transaction Layer"
NVLINK = "NVRM: Xid (PCI:0000:11:00): {}, RLW_REMAP {} XC1 i0 Link 00 (0x00000082 0x00000004 0x0 0x0 0x0 0x0 0x0)"
FALLEN, OTHER_CARD = XID.format(79), XID.replace("0000:11", "0000:10")
LOST = machine(gpu(0), gpu(1, lost=True, nvml_code=15))
SILENT = replace(machine(), gpus=Absent("no answer within 8 s: nvmlInit"))
HANGING = replace(SILENT, driver=Driver(), probe_failures={"nvml": "no answer within 8 s: nvmlInit"})
NOT_ASKED = replace(machine(), gpus=Absent("nvidia-ml-py cannot be imported"), driver=Driver())


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ("0x1 (GPU Reset Required)", "--gpu-reset -i 1"),
        ("0x2 (Node Reboot Required)", "sudo reboot"),
        ("0x3 (Drain P2P)", "copy between GPUs"),
        ("0x4 (Drain and Reset)", "--gpu-reset -i 1"),
        ("0x5 (Recover IMEX Domain)", "nvidia-fabricmanager"),
    ],
)
def test_xid_154_asks_for_what_its_message_names(wanted, says):
    finding = only(live(RECOVERY.format(wanted), facts=asking(int(wanted[2]))))
    assert (finding.id, finding.severity) == ("gpu_needs_reset", "broken")
    assert says in " ".join(f"{step.say} {step.run}" for step in finding.fix)
    assert only(report_of(RECOVERY.format(wanted))).id == "gpu_needs_reset"


def live_is(verdict, cases):
    """A test that a machine with these facts (well ones for None) and these lines in its log is judged so."""

    @pytest.mark.parametrize(("facts", "lines"), [(facts, lines) for facts, *lines in cases])
    def test(facts, lines):
        assert live(*lines, facts=facts).verdict == verdict

    return test


# a recovery that was taken back or whose GPU no longer asks for it, programs of earlier jobs, other devices of the bus
test_what_is_over_on_a_machine_or_not_of_its_gpus_is_healthy = live_is("healthy", [
    (None, RESET, TAKEN_BACK), (None, RESET), (None, *(XID.format(code) for code in (13, 31, 43, 45))),
    (None, BUS.format("pcieport", "0000:10:00.0", "Corrected")), (None, BUS.format("pcieport", "0000:99:00.0", FATAL)),
])  # fmt: skip
# a fault whose GPU is well now, a message that was cut off, an uncorrected error at a GPU
test_what_may_come_again_is_a_warning = live_is("warning", [
    (None, FALLEN), (None, XID.format(154)), (None, BUS.format("pcieport", "0000:10:00.0", FATAL)),
])  # fmt: skip
test_what_the_machine_or_the_line_itself_says_is_broken = live_is("broken", [
    (None, REBOOT), (asking(1), RESET), (LOST, FALLEN), (asking(2), FALLEN), (SILENT, FALLEN), (HANGING, FALLEN),
    (None, FALLEN, REBOOT), (None, SXID.format("20034, Fatal")),
])  # fmt: skip
test_in_a_text_a_line_counts_as_it_stands = verdict_is(
    ("broken",), [FALLEN, SXID.format("20034, Fatal"), SXID.format("99999, Fatal"), NVLINK.format(145, "Fatal")]
)
test_in_a_text_too_what_was_got_over_or_cut_off_is_a_warning = verdict_is(
    ("warning",), [XID.format(154), SXID.format("28006, Non-fatal"), NVLINK.format(145, "Nonfatal")]
)


def test_a_gpu_that_fell_from_the_bus_is_named_first_also_where_nothing_answers():
    for facts in (SILENT, HANGING):
        assert live(FALLEN, facts=facts).findings[0].id == "gpu_fallen_off_bus"
    fallen = next(f for f in live(FALLEN, facts=NOT_ASKED).findings if f.id == "gpu_fallen_off_bus")
    assert fallen.severity == "warning"


def test_a_switch_is_no_gpu_that_a_command_could_name():
    finding = only(report_of(SXID.format("20034, Fatal")))
    assert finding.cards == ()
    assert not any("0000:c1" in step.run for step in finding.fix)


def test_the_card_is_the_one_that_the_line_names():
    assert [card.index for card in only(live(XID.format(48))).cards] == [1]
    (card,) = only(report_of(XID.format(48))).cards
    assert (card.pci_address, isinstance(card.index, Absent)) == ("0000:11:00.0", True)


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


LINES = [
    ("pcie_bus_errors", BUS.format("nvidia", "0000:10:00.0", FATAL)),
    ("pcie_bus_errors", BUS.format("pcieport", "0000:10:00.0", FATAL)),
    ("nvswitch_error", SXID.format("20034, Fatal")),
    # a channel that was cleared away follows the event that began it
    ("nvlink_error", "NVRM: Xid (PCI:0000:11:00): 45, pid=81, name=python3, Ch 00000003 caused by previous Xid 145"),
]


@pytest.mark.parametrize(("cause", "line"), LINES)
def test_a_line_is_one_cause_live_and_in_a_text(cause, line):
    assert only(live(line)).id == only(report_of(line)).id == cause


def test_a_channel_that_was_cleared_away_is_no_second_cause():
    both = report_of(f"{XID.format(48)}\n{XID.format(45)}")
    assert [f.id for f in both.findings if f.confidence > 0.3] == ["gpu_ecc_error"]


def test_a_machine_passes_no_check_that_could_not_fail():
    assert live(*(XID.format(code) for code in (13, 31, 43, 45))).findings == ()
    passed = live().passed
    assert "gpu_error_reported" in passed
    assert "illegal_memory_access" not in passed


@pytest.mark.parametrize(("lines", "judged"), [(1, 1), (10_000, 6)])
def test_each_event_is_judged_once_and_ten_thousand_alike_as_a_few(lines, judged):
    machine_ = Machine(kernel_log=kernel_log.parse([XID.format(62)] * lines))
    assert len(findings(Evidence(source="file", machine=machine_))) == judged


def runs(finding):
    return [step.run for step in finding.fix]


def test_the_reboot_that_the_driver_asks_for_is_the_advice_of_the_fault_itself():
    for report in (live(XID.format(48), REBOOT, facts=asking(2)), report_of(f"{XID.format(48)}\n{REBOOT}")):
        assert report.findings[0].id == "gpu_ecc_error"
        assert "sudo reboot" in runs(report.findings[0])
        assert not any("--gpu-reset" in run for run in runs(report.findings[0]))


def test_a_reset_is_for_the_card_with_the_worse_fault_only():
    report = live(XID.format(95), RESET, OTHER_CARD.format(94), facts=asking(1))
    assert "sudo nvidia-smi --gpu-reset -i 1" in runs(report.findings[0])


def test_two_numbers_do_not_share_their_advice():
    report = live(XID.format(109), OTHER_CARD.format(39), facts=asking(1))
    (finding,) = [f for f in report.findings if f.id == "gpu_error_reported"]
    assert finding.title.startswith("Xid 109")
    assert [run for run in runs(finding) if "--gpu-reset" in run] == ["sudo nvidia-smi --gpu-reset -i 1"]


def test_an_error_that_was_contained_needs_no_reset_at_once():
    says = [step.say for step in report_of(XID.format(94)).findings[0].fix]
    assert any("the others go on" in say for say in says)
    assert any(say.startswith("Reset ") and " when its jobs have ended" in say for say in says)
    beside = report_of(f"{XID.format(94)}\n{XID.format(48)}").findings[0]
    assert not any("the others go on" in step.say for step in beside.fix)


@pytest.mark.parametrize(("word", "disruptive"), [("Nonfatal", False), ("Fatal", True)])
def test_what_nvlink_got_over_is_not_answered_with_a_reset(word, disruptive):
    line = NVLINK.format(146, word).replace("RLW_REMAP", "TLW_CTRL")
    assert any(step.disruptive for step in only(report_of(line)).fix) is disruptive


@pytest.mark.parametrize("line", [
    "NVRM: Xid (PCI:0000:3b:00): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row marked for remapping, reset gpu "
    "to activate.",
    "NVRM: Xid (PCI:0009:01:00): 121, pid=8120, name=python, C2C Link corrected error count 15",
])  # fmt: skip
def test_a_row_that_waits_for_its_reset_or_a_link_that_corrects_errors_is_a_warning(line):
    (finding,) = report_of(line).findings
    assert (finding.id, finding.severity) == ("gpu_error_reported", "warning")
    assert not any(step.disruptive for step in finding.fix)

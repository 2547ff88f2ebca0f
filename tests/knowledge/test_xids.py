from __future__ import annotations

from typing import get_args

from gpudoc.knowledge.tables import read_table
from gpudoc.knowledge.xids import Kind, Level, all_sxids, all_xids, find_sxid, find_xid

# the names of NVIDIA's resolution buckets, and 'unknown' where the catalogue's cell is empty
BUCKETS = {
    "RESTART_APP", "RESET_GPU", "RESTART_BM", "RESTART_VM", "CONTACT_SUPPORT", "WORKFLOW_XID_45", "WORKFLOW_XID_48",
    "WORKFLOW_NVLINK_ERR", "WORKFLOW_NVLINK5_ERR", "CHECK_MECHANICALS", "CHECK_UVM", "UPDATE_SWFW", "XID_154", "IGNORE",
    "RESET_FABRIC", "CHECK_THERMALS", "CHECK_FM_CONFIG", "unknown",
}  # fmt: skip


def test_a_programs_fault_is_told_from_the_cards():
    assert find_xid(31).kind == "application"
    assert find_xid(79).cause == "gpu_fallen_off_bus"
    assert find_xid(48).cause == "gpu_ecc_error"
    assert find_xid(119).cause == "gsp_firmware_timeout"


def test_what_nvidia_asks_for_is_kept_in_its_own_names():
    assert [find_xid(code).action for code in (13, 48, 54, 74, 78, 79, 95, 144, 151, 154, 159)] == [
        "RESTART_APP", "WORKFLOW_XID_48", "CHECK_MECHANICALS", "WORKFLOW_NVLINK_ERR", "UPDATE_SWFW", "RESTART_BM",
        "RESET_GPU", "WORKFLOW_NVLINK5_ERR", "RESTART_VM", "XID_154", "CHECK_UVM",
    ]  # fmt: skip
    assert find_xid(31).then == "WORKFLOW_XID_31"
    assert find_xid(167).action == "unknown"


def test_switches_have_their_own_numbers():
    assert [find_sxid(code).severity for code in (20034, 23001, 12028, 22013, 10003)] == [
        "fatal", "fatal", "error", "notice", "fatal",
    ]  # fmt: skip
    assert find_xid(20034) is None
    assert find_sxid(79) is None


def test_an_unknown_number_has_no_meaning():
    assert find_xid(9999) is None
    assert find_sxid(99999) is None


def test_the_catalogue_is_whole():
    assert [row.code for row in all_xids()] == list(range(1, 177))
    assert len(all_sxids()) == 93


def test_every_row_says_whose_fault_how_bad_and_what_to_do():
    for row in (*all_xids(), *all_sxids()):
        assert row.kind in get_args(Kind), row
        assert row.severity in get_args(Level), row
        assert row.action in BUCKETS, row
        assert row.name, row
        assert len(row.meaning) > 10, row
    assert all(row.severity == "fatal" for row in all_xids() if row.action in ("RESET_GPU", "RESTART_BM"))


def test_codes_are_listed_once_and_in_order():
    for section in ("xids", "sxids"):
        codes = [row["code"] for row in read_table("xid.yaml", section)]
        assert codes == sorted(set(codes))

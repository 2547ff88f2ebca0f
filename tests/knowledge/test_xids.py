from __future__ import annotations

from gpudoc.knowledge.tables import read_table
from gpudoc.knowledge.xids import find_xid


def test_a_programs_fault_is_told_from_the_cards():
    assert find_xid(31).kind == "application"
    assert find_xid(79).cause == "gpu_fallen_off_bus"
    assert find_xid(48).cause == "gpu_ecc_error"
    assert find_xid(119).cause == "gsp_firmware_timeout"


def test_an_unknown_number_has_no_meaning():
    assert find_xid(9999) is None


def test_codes_are_listed_once_and_in_order():
    codes = [row["code"] for row in read_table("xid.yaml", "xids")]
    assert codes == sorted(set(codes))

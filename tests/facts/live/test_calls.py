from gpudoc.facts.live.calls import SYSTEM_CALLS, WAITS_ON_A_FILE


def test_every_call_on_a_file_is_named():
    names = {SYSTEM_CALLS[number] for number in WAITS_ON_A_FILE}
    assert {"read", "pread64", "recvfrom", "preadv2"} <= names
    assert "poll" not in names
    assert "futex" not in names

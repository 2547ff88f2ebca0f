from gpudoc.cli.options import Invocation


def test_nothing_after_the_dashes_is_an_empty_command():
    assert Invocation().command == ()

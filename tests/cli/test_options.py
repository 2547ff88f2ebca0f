import os
import subprocess
import sys

import pytest

from gpudoc.cli.options import Invocation


def test_nothing_after_the_dashes_is_an_empty_command():
    assert Invocation().command == ()


@pytest.mark.parametrize(
    ("typed", "offers"),
    [
        ("gpudoc cl", {"clean"}),
        ("gpudoc tune --bud", {"--budget"}),
        ("gpudoc doctor --explain driver_too", {"driver_too_old"}),
    ],
)
def test_the_shell_completes_commands_options_and_causes(typed, offers):
    done = subprocess.run(
        [sys.executable, "-c", "from gpudoc.cli.app import main; main()"],
        capture_output=True,
        text=True,
        check=True,
        env={
            **os.environ,
            "COMP_WORDS": typed,
            "COMP_CWORD": str(len(typed.split()) - 1),
            "_GPUDOC_COMPLETE": "complete_bash",
        },
    )
    assert set(done.stdout.split()) == offers

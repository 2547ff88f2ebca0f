import subprocess
import sys

import gpudoc


def test_the_module_is_the_command():
    done = subprocess.run([sys.executable, "-m", "gpudoc", "--version"], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == f"gpudoc {gpudoc.__version__}"

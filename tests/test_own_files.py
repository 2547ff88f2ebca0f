"""gpudoc in one file: from an archive it reads its tables, starts its helpers and answers as from a disk."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import gpudoc
from gpudoc.own_files import read_own_file, script_arguments
from tests.namespaces import unshared
from tools.zipapp import MOST_BYTES, ROOT, write_archive

LOG = "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
# what is compiled, as a machine without it sees it
WITHOUT = """
import sys
class Without:
    def find_spec(self, name, path=None, target=None):
        if name in ("re2", "psutil"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Without())
sys.path.insert(0, sys.argv.pop(1))
from gpudoc.cli.app import main
main()
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """An archive with gpudoc alone; the packages that it needs are this Python's."""
    path = tmp_path_factory.mktemp("archive") / "gpudoc.pyz"
    write_archive(path, ())
    return path


def call(archive, *arguments, cwd, **options):
    command = [sys.executable, "-I", "-c", WITHOUT, archive, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, **options)


def test_out_of_an_archive_doctor_reads_a_log_and_the_machine_and_writes_a_page(archive, tmp_path):
    (tmp_path / "log").write_text(LOG)
    read = call(archive, "doctor", "log", "--json", "--html", "page.html", cwd=tmp_path)
    assert read.returncode == 1, read.stderr
    assert json.loads(read.stdout)["findings"][0]["id"] == "gpu_ecc_error"
    assert "prefers-color-scheme" in (tmp_path / "page.html").read_text("utf-8")
    looked = call(archive, "doctor", "--quick", "--python", sys.executable, "--json", cwd=tmp_path)
    assert looked.returncode in (0, 1), looked.stderr
    assert json.loads(looked.stdout)["facts"]["python"]["version"].startswith(f"{sys.version_info[0]}.")


def test_an_archive_that_is_named_from_here_reads_its_own_files(archive):
    listed = call(f"./{archive.name}", "doctor", "--list", cwd=archive.parent)
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "oom_capacity" in listed.stdout


def test_out_of_an_archive_a_command_is_watched(archive, tmp_path):
    seen = call(archive, "doctor", "--seconds", "1", "--", sys.executable, "-c", "print('ran')", cwd=tmp_path)
    assert "ran" in seen.stdout
    assert "ended with exit code 0" in seen.stderr


@pytest.mark.parametrize("command", [("tune", "--model", "quickstart"), ("train",), ("bench",), ("bench", "--across")])
def test_what_one_file_cannot_do_says_how_to_install_it(archive, tmp_path, command):
    refused = call(archive, *command, cwd=tmp_path)
    assert refused.returncode == 2, refused.stdout + refused.stderr
    assert "gpudoc.pyz" in refused.stderr
    assert 'pip install ".[train]"' in refused.stderr


def test_a_rank_of_a_job_may_ask_doctor(archive, tmp_path):
    listed = call(archive, "doctor", "--list", cwd=tmp_path, env={"RANK": "0"})
    assert (listed.returncode, listed.stderr) == (0, "")


def test_a_file_that_is_not_there_is_an_error_of_the_system():
    with pytest.raises(OSError, match="absent"):
        read_own_file(Path(gpudoc.__file__).with_name("absent.yaml"))
    assert script_arguments(Path("job.py")) == ["job.py"]


def test_nothing_compiled_is_in_the_archive(archive):
    names = zipfile.ZipFile(archive).namelist()
    assert {"__main__.py", "LICENSE", "gpudoc/render/page.css", "gpudoc/facts/examined_python.py"} <= set(names)
    assert not [name for name in names if name.endswith((".so", ".pyc"))]


def other_pythons():
    """The Pythons on PATH that gpudoc supports, besides this one."""
    for minor in range(10, 14):
        python = shutil.which(f"python3.{minor}")
        if python and subprocess.run([python, "-V"], capture_output=True, check=False).returncode == 0:
            yield python


# nothing can be written, there is no home, and what is installed is not seen
READ_ONLY = """
for place in /tmp /var/tmp /dev/shm; do mount -t tmpfs -o ro none $place; done
mount -o remount,ro,bind / && cd / && ! touch /writable 2>/dev/null || exit 99
"$0" -I "$1" doctor "$2" --json; "$0" -I "$1" doctor --quick --json
"""


@pytest.mark.slow
def test_the_whole_file_runs_read_only_and_without_a_home_on_every_python():
    enter = unshared("-rm")
    # what is below /tmp vanishes inside
    out = Path.home() / "gpudoc-of-a-test.pyz"
    try:
        subprocess.run([sys.executable, ROOT / "tools" / "zipapp.py", "--out", out], check=True, capture_output=True)
        assert out.stat().st_size <= MOST_BYTES
        for python in {Path(sys.executable).resolve(), *other_pythons()}:
            command = [*enter, "bash", "-c", READ_ONLY, python, out, LOG]
            done = subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin"})
            assert done.returncode in (0, 1), (python, done.stderr)
            log, machine = (json.loads(text) for text in done.stdout.replace("}\n{", "}\n\0{").split("\0"))
            assert log["findings"][0]["id"] == "gpu_ecc_error"
            assert machine["source"] == "machine"
            assert machine["crashed"] == []
    finally:
        out.unlink(missing_ok=True)

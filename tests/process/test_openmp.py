"""Which OpenMP runtime a process computes with: its maps as the kernel lists them, and this Python's own torch."""

import subprocess
import sys

import pytest

from gpudoc.process import openmp
from gpudoc.process.openmp import (
    SPINS,
    WAITING,
    OpenMp,
    missing_environment,
    missing_for_any,
    openmp_of,
    own_openmp,
)

ROW = "7f00-7f01 r-xp 00000000 fe:00 1234                       {}\n"


def process(root, *files, **settings):
    folder = root / "7"
    folder.mkdir()
    (folder / "maps").write_text("7f00-7f01 rw-p 00000000 00:00 0\n" + "".join(map(ROW.format, files)))
    environment = {"HOME": "/home/me", **settings}
    (folder / "environ").write_text("\0".join(f"{name}={value}" for name, value in environment.items()))
    return openmp_of(7, root)


@pytest.mark.parametrize(
    ("files", "runtime"),
    [
        (("/v/site-packages/torch/lib/libgomp.so.1",), "libgomp"),
        (("/v/site-packages/torch.libs/libgomp-24e2ab19.so.1.0.0",), "libgomp"),
        (("/conda/lib/libiomp5.so",), "libiomp5"),
        (("/usr/lib/libomp.so.5",), "libomp"),
        # torch's own before one that another package brings
        (("/v/scikit_learn.libs/libgomp-e985bcbb.so.1.0.0", "/v/torch/lib/libiomp5.so"), "libiomp5"),
        (("/usr/lib/libcomposite.so", "/tmp/libgomp.txt"), None),
        ((), None),
    ],
)
def test_the_runtime_is_the_one_that_is_mapped(files, runtime, tmp_path):
    assert process(tmp_path, *files).runtime == runtime


@pytest.mark.parametrize(
    ("runtime", "settings", "passive"),
    [
        ("libgomp", {}, False),
        ("libgomp", {"OMP_WAIT_POLICY": "PASSIVE"}, True),
        ("libgomp", {"OMP_WAIT_POLICY": "active"}, False),
        ("libgomp", {"GOMP_SPINCOUNT": "0"}, True),
        ("libgomp", {"KMP_BLOCKTIME": "0"}, False),
        ("libiomp5", {"KMP_BLOCKTIME": "0"}, True),
        ("libiomp5", {"KMP_BLOCKTIME": "200"}, False),
        (None, {"OMP_WAIT_POLICY": "passive"}, True),
    ],
)
def test_who_waits_asleep(runtime, settings, passive):
    assert OpenMp(runtime, settings).is_passive is passive


def test_the_cure_is_that_of_the_runtime():
    assert OpenMp("libgomp").cure == "export OMP_WAIT_POLICY=passive"
    assert OpenMp("libiomp5").cure == OpenMp("libomp").cure == "export KMP_BLOCKTIME=0"
    assert "OMP_WAIT_POLICY" in OpenMp(None).cure
    assert "KMP_BLOCKTIME" in OpenMp(None).cure


@pytest.mark.parametrize(
    ("runtime", "settings", "told"),
    [
        ("libgomp", {}, False),
        ("libgomp", {"OMP_WAIT_POLICY": "active"}, True),
        ("libgomp", {"GOMP_SPINCOUNT": "100"}, True),
        # a variable of another runtime
        ("libgomp", {"KMP_BLOCKTIME": "200"}, False),
        ("libiomp5", {"GOMP_SPINCOUNT": "0"}, False),
        ("libomp", {"KMP_BLOCKTIME": "200"}, True),
        (None, {"KMP_BLOCKTIME": "200"}, True),
    ],
)
def test_who_was_told_how_to_wait(runtime, settings, told):
    assert OpenMp(runtime, settings).is_told is told


@pytest.mark.parametrize(
    ("runtime", "needed"),
    [
        ("libgomp", {"OMP_WAIT_POLICY": "passive"}),
        ("libiomp5", {"KMP_BLOCKTIME": "0"}),
        (None, {"OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "0"}),
    ],
)
def test_a_profile_that_lets_threads_sleep_needs_the_variables_of_the_runtime(runtime, needed, monkeypatch):
    monkeypatch.setattr(openmp, "own_openmp", lambda: OpenMp(runtime))
    assert missing_environment("passive") == missing_environment("passive", "cpu") == needed
    assert missing_environment("default") == missing_environment("passive", "cuda") == {}
    # a process that has them needs no more of them, or it would start again and again
    monkeypatch.setattr(openmp, "own_openmp", lambda: OpenMp(runtime, needed))
    assert OpenMp(runtime, needed).is_passive
    assert missing_environment("passive", "cpu") == {}


def test_how_somebody_told_the_threads_to_wait_stays(monkeypatch):
    monkeypatch.setattr(openmp, "own_openmp", lambda: OpenMp("libgomp", {"GOMP_SPINCOUNT": "100"}))
    assert missing_environment("passive", "cpu") == {}


def test_a_command_whose_torch_is_not_known_gets_the_variables_of_every_runtime():
    assert missing_for_any("default", {}) == {}
    assert missing_for_any("passive", {"PATH": "/bin"}) == {"OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "0"}
    for name in WAITING:
        assert missing_for_any("passive", {name: "1"}) == {}


def test_only_what_says_how_threads_wait_leaves_a_process(tmp_path):
    found = process(tmp_path, GOMP_SPINCOUNT="100", SECRET="x")
    assert found.settings == {"GOMP_SPINCOUNT": "100"}


def test_a_process_that_is_gone_is_not_known(tmp_path):
    assert openmp_of(2**22 + 1, tmp_path) == OpenMp(None)


@pytest.mark.slow
def test_the_runtime_of_this_python_is_the_one_that_torch_then_loads(monkeypatch):
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    found = own_openmp()
    assert found.settings["GOMP_SPINCOUNT"] == "7"
    code = (
        "import os, sys; from gpudoc.process.openmp import openmp_of, own_openmp; found = own_openmp();"
        "assert 'torch' not in sys.modules; import torch; print(found.runtime, openmp_of(os.getpid()).runtime)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert said[0] == said[1] == str(found.runtime)


def test_without_torch_nothing_is_known(monkeypatch):
    monkeypatch.setattr(openmp.importlib.util, "find_spec", lambda _: None)
    assert own_openmp().runtime is None


def test_a_profile_that_asks_for_sleep_gets_it_where_spinning_is_bounded():
    """GOMP_SPINCOUNT goes before OMP_WAIT_POLICY."""
    bounded = OpenMp("libgomp", {"GOMP_SPINCOUNT": SPINS})
    assert bounded.passive == {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
    assert OpenMp("libgomp", bounded.passive).is_told

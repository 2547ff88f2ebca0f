import sys

import pytest

from gpudoc.errors import GpudocError
from gpudoc.workload.targets import Allowed, call, check_arguments, resolve, takes


@pytest.fixture
def allowed(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "own_target.py").write_text(
        "import os\nfrom os import system\nVALUE = 3\n"
        "def build(width: int, depth: int = 2):\n    return [width] * depth\n"
        "def broken():\n    return 1 / 0\n"
    )
    (tmp_path / "fails_on_import.py").write_text("raise RuntimeError('at import')\n")
    (tmp_path / "needs_more.py").write_text("import surely_not_installed\n")
    return Allowed(folder=tmp_path, packages=())


def test_a_function_in_the_configs_own_folder(allowed):
    assert resolve("own_target:build", allowed)(3) == [3, 3]


def test_torch_needs_no_permission(allowed):
    assert resolve("torch.nn:Linear", allowed).__name__ == "Linear"


@pytest.mark.parametrize("target", ["os:system", "logging:Logger", "builtins:eval", "subprocess:run", "yaml:load"])
def test_what_was_not_allowed_is_not_imported(allowed, target):
    with pytest.raises(GpudocError, match="may not import") as caught:
        resolve(target, allowed)
    assert "imports: [" in caught.value.hint


def test_a_reexport_does_not_open_a_door(allowed):
    with pytest.raises(GpudocError, match=r"comes from (posix|nt)"):
        resolve("own_target:system", allowed)


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("own_target:biuld", "has no 'biuld'"),
        ("own_target:VALUE", "not a class or a function"),
        ("own_target:os", "not a class or a function"),
        ("fails_on_import:x", "importing fails_on_import failed: RuntimeError: at import .*fails_on_import.py:1"),
        ("needs_more:x", "no module named 'surely_not_installed'"),
    ],
)
def test_what_cannot_be_resolved_says_why(allowed, target, says):
    with pytest.raises(GpudocError, match=says):
        resolve(target, allowed)


def test_the_nearest_name_in_the_module_is_offered(allowed):
    with pytest.raises(GpudocError) as caught:
        resolve("own_target:biuld", allowed)
    assert caught.value.hint == "did you mean own_target:build?"


def test_wrong_arguments_are_found_before_the_call(allowed):
    build = resolve("own_target:build", allowed)
    with pytest.raises(GpudocError) as caught:
        check_arguments("own_target:build", build, {"widht": 3})
    assert caught.value.hint == "did you mean 'width'?"


def test_an_error_in_the_users_code_names_its_place(allowed):
    with pytest.raises(GpudocError, match=r"ZeroDivisionError.*own_target.py:7"):
        call("own_target:broken", resolve("own_target:broken", allowed), {})


def test_a_parameter_can_be_asked_for(allowed):
    build = resolve("own_target:build", allowed)
    assert takes(build, "depth")
    assert not takes(build, "dataset")


def test_a_module_that_does_not_exist_is_a_typing_error_and_no_question_of_trust(allowed):
    with pytest.raises(GpudocError, match="no module 'own_targt' in") as caught:
        resolve("own_targt:build", allowed)
    assert caught.value.hint == "did you mean own_target:build?"
    with pytest.raises(GpudocError, match="none is installed") as caught:
        resolve("nothing_like_it_here:build", allowed)
    assert "put nothing_like_it_here.py next to the config" in caught.value.hint

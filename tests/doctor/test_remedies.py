from __future__ import annotations

from gpudoc.doctor.model import Setting
from gpudoc.doctor.remedies import always, as_root, by_place, do, driver_update, install, remove, torch_build


def runs(steps):
    return " ; ".join(step.run for step in steps)


def test_commands_are_in_the_packager_s_dialect():
    assert install(Setting(packager="uv"), "torch") == "uv pip install torch"
    assert install(Setting(place="colab"), "torch") == "%pip install torch"
    assert remove(Setting(), "torch") == "pip uninstall -y torch"
    assert remove(Setting(packager="uv"), "torch") == "uv pip uninstall torch"


def test_system_commands_are_in_the_distribution_s_dialect():
    assert as_root(Setting(distribution="Rocky Linux 9.3"), "apt x", "dnf x") == "sudo dnf x"
    assert as_root(Setting(distribution="Arch Linux"), "apt x", "dnf x", "pacman x") == "sudo pacman x"
    assert as_root(Setting(), "apt x", "dnf x") == "sudo apt x"


def test_advice_may_depend_on_the_place():
    advise = by_place((do("here"),), docker=(do("outside"),))
    assert advise(Setting(place="docker"))[0].say == "outside"
    assert advise(Setting(place="slurm"))[0].say == "here"
    assert always(do("a"), do("b"))(Setting())[1].say == "b"


def test_a_wheel_is_offered_that_both_the_driver_and_the_gpu_run():
    old_driver = runs(driver_update(Setting(driver_cuda=(11, 4), capability=(7, 5))))
    assert "torch==2.7.1" in old_driver
    assert "/whl/cu118" in old_driver
    assert "cu12" not in old_driver
    volta = runs(torch_build(Setting(driver_cuda=(13, 0), capability=(7, 0))))
    assert "/whl/cu126" in volta
    blackwell = runs(torch_build(Setting(driver_cuda=(13, 0), capability=(12, 0))))
    assert "/whl/cu13" in blackwell


def test_where_no_wheel_fits_none_is_offered():
    (only,) = torch_build(Setting(driver_cuda=(11, 4), capability=(12, 0)))
    assert "update the driver" in only.say
    assert not only.run
    assert "pip install" not in runs(driver_update(Setting(driver_cuda=(11, 4), capability=(12, 0))))


def test_a_driver_is_updated_where_it_lives():
    assert "host" in driver_update(Setting(place="docker"))[0].say
    assert "Windows" in driver_update(Setting(place="wsl"))[0].say
    assert "administrator" in driver_update(Setting(place="slurm", driver_cuda=(12, 2)))[-1].say

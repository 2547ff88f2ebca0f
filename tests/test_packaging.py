"""Presets are found from a checkout, an editable install and a wheel; the wheel carries nothing else by accident."""

import os
import pathlib
import shutil
import subprocess
import sys
import venv
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
LIST_PRESETS = (
    "from gpudoc.profile.store import presets, shipped_folder\n"
    "print(shipped_folder(), *sorted(entry.path.stem for entry in presets()))\n"
)
EXPECTED = {path.stem for path in (ROOT / "profiles").glob("*.yaml")}


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def clean_environment():
    return {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT)
    (path,) = folder.glob("*.whl")
    return path


def environment_with(tmp_path, *what):
    """A virtual environment that sees this one's packages, with gpudoc installed into it."""
    folder = tmp_path / "env"
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])").strip()
    outer = run(sys.executable, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])").strip()
    pathlib.Path(site, "outer.pth").write_text(outer + "\n")
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--force-reinstall"]
    run(python, *install, *what, env=clean_environment())
    return python


def test_the_wheel_carries_the_presets_and_the_licence(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"gpudoc/_profiles/{stem}.yaml" for stem in EXPECTED} <= names
    assert any(name.endswith("LICENSE") for name in names)
    assert {"gpudoc/workload/builtin/quickstart.yaml", "gpudoc/render/page.css", "gpudoc/render/page.js"} <= names
    foreign = ("tests", "benchmarks", "campaigns", "records", "runs")
    strays = [name for name in names if name.startswith(foreign) or "__pycache__" in name]
    assert not strays


def test_presets_from_a_wheel(wheel, tmp_path):
    python = environment_with(tmp_path, wheel)
    folder, *stems = run(python, "-c", LIST_PRESETS, cwd=tmp_path, env=clean_environment()).split()
    assert folder.endswith("gpudoc/_profiles")
    assert set(stems) == EXPECTED
    assert "gpudoc" in run(tmp_path / "env" / "bin" / "gpudoc", "--version", cwd=tmp_path, env=clean_environment())


def test_presets_from_an_editable_install(tmp_path):
    python = environment_with(tmp_path, "--editable", ROOT)
    folder, *stems = run(python, "-c", LIST_PRESETS, cwd=tmp_path, env=clean_environment()).split()
    assert pathlib.Path(folder) == ROOT / "profiles"
    assert set(stems) == EXPECTED


def test_presets_from_a_checkout(tmp_path):
    environment = {**clean_environment(), "PYTHONPATH": str(ROOT)}
    folder, *stems = run(sys.executable, "-c", LIST_PRESETS, cwd=tmp_path, env=environment).split()
    assert pathlib.Path(folder) == ROOT / "profiles"
    assert set(stems) == EXPECTED


@pytest.mark.slow
def test_the_distributions_name_is_one_line_and_the_command_stays(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for name in ("gpudoc", "profiles"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("README.md", "LICENSE", "CHANGELOG.md"):
        shutil.copy(ROOT / name, source / name)
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    assert text.count('\nname = "gpudoc"\n') == 1
    (source / "pyproject.toml").write_text(text.replace('\nname = "gpudoc"\n', '\nname = "another-name"\n'), "utf-8")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path / "dist", source)
    (built,) = (tmp_path / "dist").glob("another_name-*.whl")
    python = environment_with(tmp_path, built)
    gpudoc = [tmp_path / "env" / "bin" / "gpudoc"]
    assert run(*gpudoc, "--version", cwd=tmp_path, env=clean_environment()).startswith("gpudoc ")
    assert "means:" in run(*gpudoc, "doctor", "--explain", "driver_too_old", cwd=tmp_path, env=clean_environment())
    folder, *stems = run(python, "-c", LIST_PRESETS, cwd=tmp_path, env=clean_environment()).split()
    assert folder.startswith(str(tmp_path))
    assert set(stems) == EXPECTED

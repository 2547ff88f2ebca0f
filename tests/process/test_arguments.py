import subprocess
import sys

from gpudoc.process.arguments import own_python, without


def test_another_python_finds_modules_where_this_one_does_and_not_where_it_runs(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "planted.py").write_text("print('the right one')")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "planted.py").write_text("print('the folder it runs in')")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "mine"), *filter(None, sys.path)])
    done = subprocess.run(
        own_python("import planted; sys.exit(3)"), cwd=tmp_path / "here", capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (3, "the right one\n")


def test_options_go_with_their_values_and_flags_alone():
    line = ["--model", "a.yaml", "--gpus", "2", "--slurm=job.sh", "--plain", "--gpus=4", "--json"]
    assert without(line, "--gpus", "--slurm") == ["--model", "a.yaml", "--plain", "--json"]
    assert without(line, "--gpus", "--slurm", flags=("--plain",)) == ["--model", "a.yaml", "--json"]


def test_what_is_not_named_stays_as_it_is():
    line = ["--set", "gpus=2", "--gpus-per-node", "2", "--plainly"]
    assert without(line, "--gpus", flags=("--plain",)) == line


def test_an_option_at_the_end_has_no_value_to_take():
    assert without(["--model", "a", "--gpus"], "--gpus") == ["--model", "a"]

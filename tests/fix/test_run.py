"""`gpudoc fix` over real scripts: what is wrong is changed and proved, what is right stays, nothing is left behind."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpudoc.errors import ExitCode, GpudocError
from gpudoc.fix import run as run_module
from gpudoc.fix.model import Candidate, Claim, HotLine, RunEvidence
from gpudoc.fix.options import FixOptions
from gpudoc.fix.proof import FixProof
from gpudoc.fix.run import FixResult, run, write_changes
from gpudoc.progress import SILENT
from gpudoc.script.cell import Isolation
from gpudoc.tune.trial.deadline import Deadline
from tests.script.test_advice import look

SCRIPTS = Path(__file__).parent / "scripts"


def fixed(folder, monkeypatch, name, *arguments, **options):
    shutil.copy(SCRIPTS / f"{name}.py", folder / f"{name}.py")
    monkeypatch.chdir(folder)
    return run(FixOptions(command=(sys.executable, f"{name}.py", *arguments), **options))


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_anomaly_detection_is_turned_off_with_a_proof_and_only_write_writes(tmp_path, monkeypatch):
    found = fixed(tmp_path, monkeypatch, "anomaly", "16", budget="10m")
    assert [proof.candidate.rewrite for proof in found.accepted] == ["anomaly-off"]
    proof = found.accepted[0]
    assert (proof.claim, proof.is_faster) == (Claim.EXACT, True)
    assert proof.boundaries >= 1
    assert found.exit_code is ExitCode.BAD_ANSWER
    assert contents(tmp_path) == {"anomaly.py": (SCRIPTS / "anomaly.py").read_bytes()}
    assert b"-torch.autograd.set_detect_anomaly(True)" in found.diff
    write_changes(found)
    assert contents(tmp_path)["anomaly.py"].decode() == found.after[tmp_path / "anomaly.py"]


@pytest.mark.slow
def test_a_healthy_script_is_left_alone(tmp_path, monkeypatch):
    found = fixed(tmp_path, monkeypatch, "healthy", "8", budget="10m")
    assert (found.accepted, found.diff, found.exit_code) == ((), b"", ExitCode.OK)
    assert found.evidence.hot


@pytest.mark.slow
def test_a_script_that_is_not_equal_to_itself_is_said_first_and_nothing_is_offered(tmp_path, monkeypatch):
    found = fixed(tmp_path, monkeypatch, "unseeded", "16", budget="10m")
    assert found.unequal
    assert found.accepted == ()
    assert "does not repeat itself" in found.lost[0].why
    assert found.exit_code is ExitCode.NOT_DONE


def test_a_script_that_fails_as_it_is_does_not_end_as_one_with_a_proved_change_does(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text("raise SystemExit('no data here')\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GpudocError, match=r"fails even unchanged: .*no data here") as caught:
        run(FixOptions(command=(sys.executable, "train.py")))
    assert caught.value.exit_code is ExitCode.NOT_DONE


def result_of(path, before, after):
    candidate = Candidate("anomaly-off", path, 1, Claim.EXACT, before, after)
    proof = FixProof(candidate=candidate, claim=Claim.EXACT, why="")
    return FixResult(
        options=FixOptions(command=("python", "train.py")), look=None, evidence=RunEvidence(hot=()), accepted=(proof,),
        refused=(), lost=(), before={path: before}, after={path: after}, whole=None, launches=4, seconds=1.0,
    )  # fmt: skip


FIRST = Candidate("anomaly-off", Path("/x/train.py"), 1, Claim.EXACT, "a\n", "b\n")
SECOND = Candidate("retain-graph", Path("/x/train.py"), 1, Claim.EXACT, "b\n", "c\n")


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("a\n")
    return path


def played(monkeypatch, rounds, *, whole=None):
    """A run whose rounds accept these candidates, or are interrupted; what is proved of them together is given."""
    seen, left = look(), list(rounds)

    def improve(fixer, evidence, seen, *, died):
        one = left.pop(0)
        if one is KeyboardInterrupt:
            raise one
        if one is not None:
            fixer._accept(FixProof(candidate=one, claim=Claim.EXACT, why=""))
        return one is not None

    told = SimpleNamespace(seen=(), start_s=1.0, error=None, num_steps=50, status=None)
    monkeypatch.setattr(run_module, "what_can_be", lambda: Isolation(files=True, network=True))
    monkeypatch.setattr(run_module, "look_at", lambda *a, **k: seen)
    monkeypatch.setattr(run_module, "read_evidence", lambda *a: RunEvidence(hot=()))
    monkeypatch.setattr(run_module._Fixer, "_look", lambda fixer, number: told)
    monkeypatch.setattr(run_module._Fixer, "_improve", improve)
    monkeypatch.setattr(run_module._Fixer, "_prove_whole", lambda fixer: whole)
    return run(FixOptions(command=(sys.executable, "-V"), write=True))


def names(proofs):
    return [proof.candidate.rewrite for proof in proofs]


def test_changes_that_are_proved_together_are_written_together(monkeypatch, script):
    proof = FixProof(candidate=SECOND, claim=Claim.EXACT, why="")
    found = played(monkeypatch, [replace(FIRST, file=script), replace(SECOND, file=script), None], whole=proof)
    assert names(found.accepted) == ["anomaly-off", "retain-graph"]
    assert script.read_text() == "c\n"


def test_of_changes_that_are_not_proved_together_only_the_first_is_offered(monkeypatch, script):
    found = played(monkeypatch, [replace(FIRST, file=script), replace(SECOND, file=script), None])
    assert (names(found.accepted), names(found.lost)) == (["anomaly-off"], ["retain-graph"])
    assert (found.exit_code, script.read_text()) == (ExitCode.BAD_ANSWER, "b\n")


def test_an_interruption_keeps_what_was_proved_and_writes_nothing(monkeypatch, script):
    found = played(monkeypatch, [replace(FIRST, file=script), KeyboardInterrupt])
    assert names(found.accepted) == ["anomaly-off"]
    assert (found.exit_code, found.written, script.read_text()) == (ExitCode.INTERRUPTED, (), "a\n")


def test_an_interruption_before_anything_is_proved_says_so(monkeypatch):
    with pytest.raises(GpudocError, match="nothing was proved") as raised:
        played(monkeypatch, [KeyboardInterrupt])
    assert raised.value.exit_code == ExitCode.INTERRUPTED


def test_line_ends_and_tabs_are_written_as_they_were(tmp_path):
    path = tmp_path / "train.py"
    path.write_bytes(b"a = 1\r\n\tb\r\n")
    result = write_changes(result_of(path, "a = 1\r\n\tb\r\n", "a = 2\r\n\tb\r\n"))
    assert path.read_bytes() == b"a = 2\r\n\tb\r\n"
    assert result.written == (path,)


def test_a_file_that_was_changed_meanwhile_is_not_written(tmp_path):
    path, other = tmp_path / "train.py", tmp_path / "other.py"
    path.write_text("changed\n")
    other.write_text("a\n")
    result = result_of(path, "a\n", "b\n")
    result = replace(result, before={other: "a\n", path: "a\n"}, after={other: "b\n", path: "b\n"})
    with pytest.raises(GpudocError, match="was changed while fix was running") as raised:
        write_changes(result)
    assert raised.value.exit_code == ExitCode.NOT_DONE
    assert (path.read_text(), other.read_text()) == ("changed\n", "a\n")


def test_a_file_without_write_permission_is_not_written(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("a\n")
    path.chmod(0o444)
    with pytest.raises(GpudocError, match="is not writable"):
        write_changes(result_of(path, "a\n", "b\n"))
    assert path.read_text() == "a\n"


def test_a_script_without_write_permission_is_refused_before_anything_is_started(tmp_path, monkeypatch):
    script = tmp_path / "train.py"
    script.write_text("print(1)\n")
    script.chmod(0o444)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gpudoc.fix.run.what_can_be", lambda: pytest.fail("a launch was prepared"))
    with pytest.raises(GpudocError, match=r"train\.py is not writable") as raised:
        run(FixOptions(command=(sys.executable, "train.py"), write=True))
    assert "--patch" in raised.value.hint


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"command": ()}, "put a command after --"),
        ({"command": ("python", "x.py"), "budget": "soon"}, "--budget"),
        ({"command": ("python", "x.py"), "allow": "all"}, "--allow"),
        ({"command": ("python", "x.py"), "memory_limit": "much"}, "--memory-limit"),
        ({"command": ("no-such-command",)}, "no such command"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_started(options, words):
    with pytest.raises(GpudocError, match=words) as raised:
        run(FixOptions(**options))
    assert raised.value.exit_code == ExitCode.NOT_DONE


def test_a_script_outside_of_this_folder_is_refused_with_the_command_that_works(tmp_path, monkeypatch):
    folder = tmp_path / "my work"
    folder.mkdir()
    (folder / "train.py").write_text("print(1)\n")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(GpudocError, match="outside of this folder") as raised:
        run(FixOptions(command=("python", "../my work/train.py", "--epochs", "3")))
    assert raised.value.hint == f"cd '{folder}' && gpudoc fix -- python train.py --epochs 3"


def test_without_a_cell_no_changed_script_is_tried(monkeypatch):
    monkeypatch.setattr("gpudoc.fix.run.what_can_be", lambda: Isolation(why_not=("user namespaces are off",)))
    with pytest.raises(GpudocError, match="user namespaces are off"):
        run(FixOptions(command=(sys.executable, "-V")))


def test_a_script_that_makes_no_step_is_refused_with_its_last_words(tmp_path, monkeypatch):
    (tmp_path / "broken.py").write_text("raise KeyError('lr')\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GpudocError, match="KeyError"):
        run(FixOptions(command=(sys.executable, "broken.py")))
    assert contents(tmp_path) == {"broken.py": b"raise KeyError('lr')\n"}


@pytest.mark.parametrize(
    ("allow", "claims"),
    [
        ("", {Claim.EXACT}),
        ("rounding", {Claim.EXACT, Claim.ROUNDING}),
        ("behaviour, rounding", {Claim.EXACT, Claim.BEHAVIOUR, Claim.ROUNDING}),
    ],
)
def test_a_change_that_is_not_exact_is_offered_where_its_class_is_allowed(allow, claims):
    assert FixOptions(allow=allow).claims == claims


def test_a_change_that_only_rounds_otherwise_is_named_and_not_run_unless_it_is_allowed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text("import torch\n\ntorch.set_num_threads(1)\n")
    evidence = RunEvidence(hot=(HotLine(path, 3, 0.5),), threads=1)

    def asked(allow):
        options = FixOptions(command=("python", "train.py"), allow=allow)
        launches = SimpleNamespace(files={})
        fixer = run_module._Fixer(options, launches, SILENT, Deadline(), options.claims)
        return fixer._candidates(evidence, died=False), fixer.refused

    found, refused = asked("")
    assert found == []
    assert [(one.rewrite, one.line) for one in refused] == [("few-threads", 3)]
    assert "`gpudoc fix --allow rounding -- " in refused[0].reason
    found, refused = asked("rounding")
    assert [one.rewrite for one in found] == ["few-threads"]
    assert refused == []


def test_repeated_work_is_tried_before_the_loader_in_whichever_file_it_stands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main, data = tmp_path / "main.py", tmp_path / "other.py"
    main.write_text("import torch\n\ntorch.set_num_threads(1)\n")
    data.write_text("import torch\n\ntorch.autograd.set_detect_anomaly(True)\n")
    evidence = RunEvidence(hot=(HotLine(main, 3, 0.5), HotLine(data, 3, 0.3)), threads=1, anomaly_detection=True)
    options = FixOptions(command=("python", "main.py"), allow="rounding")
    fixer = run_module._Fixer(options, SimpleNamespace(files={}), SILENT, Deadline(), options.claims)
    assert [one.rewrite for one in fixer._candidates(evidence, died=False)] == ["anomaly-off", "few-threads"]

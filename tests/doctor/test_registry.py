from __future__ import annotations

import ast
import importlib
import itertools
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest

import gpudoc.doctor
from gpudoc.doctor import causes
from gpudoc.doctor.causes import job, step_trace
from gpudoc.doctor.model import Card, Evidence, Packager, Place, Remedy, Setting
from gpudoc.doctor.registry import CATALOGUE, FILES, FINDERS, finders_for
from gpudoc.doctor.xid_advice import CONTAINED, advise_for, advise_recovery, got_over
from gpudoc.facts.readers import intake
from gpudoc.knowledge.signature_rows import CODE, load_folder
from gpudoc.knowledge.tables import FOLDER
from gpudoc.knowledge.xids import all_sxids, all_xids

SIGNATURES = FOLDER / "signatures"
NO_VERB = re.compile(
    r"[^A-Z]|.*[?:]$|(?:A|An|And|Can|Does|Else|Fewer|For|How|If|In|Is|It|Its|More|No|Not|On|Or|The|Then|Until|What|When"
    r"|Where|Which|Who|Why|With|Without)\b"
)


def test_every_finder_looks_for_a_cause_of_the_catalogue():
    # the causes of the rows that `signatures` reads are tested with them
    assert not {finder.id for finder in FINDERS} - set(CATALOGUE) - {"signatures"}


def test_consequences_are_causes_too():
    for cause in CATALOGUE.values():
        assert not set(cause.explains) - set(CATALOGUE), cause.id
        assert cause.id not in cause.explains


def settings():
    """Every place and packager, with and without a card, GPUs old and new under either kind of module."""
    variants = itertools.product(
        get_args(Place), get_args(Packager), ((), (Card(index=1),)), (None, (7, 0), (9, 0)), (None, False)
    )
    for (place, packager, cards, capability, opened), count in zip(variants, itertools.cycle((None, 1, 4))):
        yield Setting(
            place=place, packager=packager, cards=cards, capability=capability, open_module=opened, num_gpus=count,
            driver_cuda=(12, 4) if capability else None,
        )  # fmt: skip


def unclear(steps: tuple[Remedy, ...]) -> list[str]:
    """The steps that begin with no verb: a question, a label, or a word that is certainly none."""
    return [step.say for step in steps if NO_VERB.match(step.say)]


@pytest.mark.parametrize("cause_id", CATALOGUE)
def test_every_step_of_a_cause_tells_what_to_do(cause_id):
    assert not {say for setting in settings() for say in unclear(CATALOGUE[cause_id].fix(setting))}


def test_every_step_of_a_number_of_the_kernel_log_tells_what_to_do():
    advices = [advise_for(row, row.severity) for row in (*all_xids(), *all_sxids())]
    advices += [advise_for(None, level) for level in ("fatal", "warning")]
    advices += [advise_recovery(name) for name in ("GPU Reset Required", "Node Reboot", "Drain P2P", "Recover IMEX")]
    places = [Setting(place=place) for place in get_args(Place)]
    assert not {say for advise in (*advices, CONTAINED, got_over) for there in places for say in unclear(advise(there))}


def written_steps(path: Path) -> list[str]:
    """The steps that a source file writes out, each with what stands for a value as a blank."""
    calls = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)]
    calls = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id in ("do", "smi", "Remedy")]
    says = [[*call.args[:1], *(word.value for word in call.keywords if word.arg == "say")] for call in calls]
    parts = [say.values if isinstance(say, ast.JoinedStr) else [say] for (say, *_) in says]
    texts = [[part.value if isinstance(part, ast.Constant) else "" for part in one] for one in parts]
    return [" ".join(text) for text in texts if text[0]]


def test_every_step_that_a_finder_writes_tells_what_to_do():
    files = sorted(Path(gpudoc.doctor.__file__).parent.rglob("*.py"))
    steps = {path.name: written_steps(path) for path in files}
    assert len(steps["job_input.py"]) > 5
    assert not {say for says in steps.values() for say in unclear(tuple(Remedy(say=say) for say in says))}


@pytest.mark.parametrize("say", ["Who?", "On older torch or Windows:", "Or fewer workers.", "python train.py", "Look:"])
def test_what_is_no_step_is_told_apart(say):
    assert unclear((Remedy(say=say),))
    assert not unclear((Remedy(say="Look who holds the memory."),))


def test_every_file_of_the_causes_that_has_finders_is_asked_once():
    files = [path for path in Path(causes.__path__[0]).glob("*.py") if "\nFINDERS" in path.read_text("utf-8")]
    asked = {finder.find for finder in (*FINDERS, *job.FINDERS, *step_trace.FINDERS)}
    for path in files:
        own = importlib.import_module(f"{causes.__name__}.{path.stem}").FINDERS
        assert {finder.find for finder in own} <= asked, path.name
    assert len(set(FINDERS)) == len(FINDERS)
    assert not [finder.id for finder in FINDERS if finder.reads in ("watch", "trace")]


def test_what_judges_brings_in_nothing_that_watches_parses_or_asks_the_system():
    code = "import sys; from gpudoc.doctor.registry import FINDERS; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"multiprocessing", "psutil", "yaml", "tempfile", "importlib.resources"}
    assert "gpudoc.doctor.causes.chain" in done.stdout.split()
    assert not heavy & set(done.stdout.split())
    assert not re.findall(r"gpudoc\S*(?:live\.|causes\.job|step_trace|timeline|facts\.process)\S*", done.stdout)


def test_the_files_that_judge_texts_are_those_with_a_gate():
    def judges_texts(name):
        return any(one.reads == "text" for one in import_module(f"{causes.__name__}.{name}").FINDERS)

    assert set(filter(judges_texts, FILES)) == {name for name, gate in FILES.items() if gate is not None}


def test_behind_a_closed_gate_no_finder_has_anything_to_say():
    rows = [*load_folder(SIGNATURES, examples=True), *load_folder(SIGNATURES, examples=True, families=(CODE,))]
    num_closed = 0
    for example in [example for row in rows for example in row.examples]:
        reading = intake.read(example)
        evidence = Evidence(source="file", machine=reading.machine, reading=reading)
        for name, gate in FILES.items():
            if gate is None or gate.is_open(evidence):
                continue
            num_closed += 1
            finders = [one for one in import_module(f"{causes.__name__}.{name}").FINDERS if one.reads == "text"]
            assert not [found for one in finders for found in one.find(evidence)], (name, example)
    assert num_closed > 1000


def test_of_a_text_the_same_is_found_by_few_finders_as_by_all():
    text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    reading = intake.read(text)
    evidence = Evidence(source="file", machine=reading.machine, reading=reading)
    few = [one for one in finders_for(evidence) if one.reads == "text"]
    every = [one for one in FINDERS if one.reads == "text"]
    assert set(few) < set(every)
    assert [f.id for one in few for f in one.find(evidence)] == [f.id for one in every for f in one.find(evidence)]

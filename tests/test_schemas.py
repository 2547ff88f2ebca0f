"""The JSON Schemas under docs/schemas: fresh, and true of what the commands really print."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from gpudoc.bench.documents import record_to_json
from gpudoc.cli.app import run
from gpudoc.fleet.documents import record_to_json as fleet_to_json
from gpudoc.tune.run import document
from tests.fleet.test_documents import a_record
from tests.render.test_bench_page import RECORD
from tests.render.test_tune import result  # noqa: F401
from tools.schemas import FOLDER, schemas

jsonschema = pytest.importorskip("jsonschema")
ROOT = Path(__file__).resolve().parents[1]


def check(document):
    schema = json.loads((FOLDER / f"{document['schema']}.json").read_text("utf-8"))
    jsonschema.Draft202012Validator(schema).validate(document)
    return document


def printed(capsys, *arguments):
    run([*arguments, "--json"])
    return check(json.loads(capsys.readouterr().out))


def test_they_are_what_the_types_say():
    assert {path.stem: json.loads(path.read_text("utf-8")) for path in FOLDER.glob("*.json")} == schemas()


@pytest.mark.parametrize("name", sorted(schemas()))
def test_each_is_a_schema_that_refuses_another_document(name):
    validator = jsonschema.Draft202012Validator(schemas()[name])
    validator.check_schema(validator.schema)
    assert not validator.is_valid({"schema": "gpudoc.other.v1"})
    assert not validator.is_valid({"schema": name})


@pytest.mark.parametrize("name", ["wheel", "memory", "gpu", "rank", "nan"])
def test_reports_of_texts_are_valid(name, capsys, tmp_path):
    from gpudoc.knowledge.failures import FAILURES

    (tmp_path / "log").write_text(next(one.text for one in FAILURES if one.name == name))
    assert printed(capsys, "doctor", str(tmp_path / "log"))["findings"]


def test_reports_of_this_machine_causes_and_errors_are_valid(capsys):
    assert printed(capsys, "doctor", "--quick")["source"] == "machine"
    assert len(printed(capsys, "doctor", "--list")["causes"]) > 100
    assert printed(capsys, "doctor", "absent.log")["schema"] == "gpudoc.error.v1"


def test_profiles_and_records_of_bench_are_valid():
    for preset in sorted((ROOT / "profiles").glob("*.yaml")):
        check(yaml.safe_load(preset.read_text("utf-8")))
    check(json.loads(json.dumps(record_to_json(RECORD))))


def test_records_of_fleets_and_answers_of_tune_are_valid(result):  # noqa: F811
    check(json.loads(json.dumps(fleet_to_json(a_record()))))
    check(json.loads(json.dumps(document(result))))


def test_a_run_that_is_only_written_is_valid(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert printed(capsys, "train", "--model", "quickstart", "--slurm", "job.sbatch")["status"] == "written"


def test_a_wrong_type_is_refused(capsys):
    document = printed(capsys, "doctor", "RuntimeError: CUDA error: uncorrectable ECC error encountered")
    document["findings"][0]["confidence"] = "high"
    with pytest.raises(jsonschema.ValidationError):
        check(document)

"""summary.json holds the stages, the figures and every setting's source, and its parts add up."""

import json

import pytest

from tests.train.support import metrics, summary, train_here, write_workload


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("summary")
    write_workload(folder, evaluated=True, eval_every=5, log_every=2)
    assert train_here(folder, "--model", "cfg.yaml", "--steps", "10", "--profile", "off", "--set", "lr=0.02") == 0
    return folder / "runs" / "cfg"


def test_it_names_its_schema_and_counts_what_was_trained(run):
    found = summary(run)
    assert found["schema"] == "gpudoc.train.v1"
    assert (found["steps"], found["samples"], found["world"], found["device"]) == (10, 120, 1, "cpu")
    assert found["first_loss"] > found["final_loss"] > 0
    assert found["resumed_from"] is None


def test_the_parts_of_the_time_add_up(run):
    found = summary(run)
    assert sum(found["share"].values()) == pytest.approx(1, abs=0.01)
    assert found["seconds"]["evaluate"] > 0
    assert found["samples_per_s"] == pytest.approx(found["samples"] / sum(found["seconds"].values()), rel=0.01)


def test_the_stages_have_status_time_device_and_memory(run):
    stages = {stage["name"]: stage for stage in summary(run)["stages"]}
    assert {"doctor", "train", "evaluate"} <= set(stages)
    assert stages["train"]["status"] == "finished"
    assert stages["train"]["memory_peak_bytes"] > 1 << 20
    assert stages["evaluate"]["status"] == "done"


def test_every_setting_knows_where_it_came_from(run):
    settings = summary(run)["settings"]
    assert settings["lr"] == {"value": 0.02, "from": "flag"}
    assert settings["eval_every"]["from"] == "config"
    assert settings["keep"]["from"] in ("default", "config")


def test_the_last_evaluation_and_the_best_are_in_it(run):
    found = summary(run)
    evaluated = [row["eval"]["loss"] for row in metrics(run) if "eval" in row]
    assert found["evaluation"]["loss"] == pytest.approx(evaluated[-1])
    assert found["best"]["loss"] == pytest.approx(min(evaluated))


def test_it_is_plain_json_without_nan(run):
    text = (run / "summary.json").read_text()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in summary.json"))


def test_it_is_what_the_schema_says(run):
    jsonschema = pytest.importorskip("jsonschema")
    from tools.schemas import schemas

    validator = jsonschema.Draft202012Validator(schemas()["gpudoc.train.v1"])
    validator.validate(summary(run))
    # else one of the other forms might take it
    assert not validator.is_valid({**summary(run), "world": "one"})

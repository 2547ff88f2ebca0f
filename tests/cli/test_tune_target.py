"""`gpudoc tune --target` as a person calls it, without a GPU."""

import json

from gpudoc.cli import app


def test_a_prediction_is_one_document_on_stdout(capfd):
    assert app.run(["tune", "--model", "quickstart", "--target", "RTX 3090,8GiB", "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert document["schema"] == "gpudoc.tune.v1"
    assert [target["target"] for target in document["targets"]] == ["RTX 3090", "8GiB"]
    assert document["targets"][0]["largest_batch"] > document["targets"][1]["largest_batch"] > 0


def test_an_unknown_card_is_a_mistake_with_the_nearest_name(capfd):
    assert app.run(["tune", "--model", "quickstart", "--target", "RTX 309"]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert "unknown card" in err
    assert "RTX 3090" in err
    assert "Traceback" not in err

"""`gpudoc tune --target` as a person runs it: a real process, no GPU."""

import json
import subprocess
import sys

from gpudoc.cli import app


def gpudoc(*arguments):
    return subprocess.run([sys.executable, "-m", "gpudoc", *arguments], capture_output=True, text=True, timeout=300)


def test_a_prediction_is_one_document_on_stdout():
    done = gpudoc("tune", "--model", "quickstart", "--target", "RTX 3090,8GiB", "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 0
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

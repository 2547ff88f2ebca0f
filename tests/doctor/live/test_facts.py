import json

from gpudoc.doctor.live.facts import dump
from tests.facts.live.made import gpu, track, watch, worker


def test_the_shares_are_plain_values_and_what_is_missing_is_named():
    seen = dump(watch({1: "wait*50 backward*50", 2: "w_fetch*20"}, [track(), worker(2)]))
    assert seen["ranks"][0]["phases"] == {"waiting for data": 0.5, "backward": 0.5}
    assert seen["workers"][0]["busy"] == 1.0
    assert seen["absent"]["gpus"] == "NVML: not found"
    json.dumps(seen)


def test_gpus_that_were_sampled_are_listed():
    seen = dump(watch({1: "backward*50"}, gpus=(gpu(busy=50),)))
    assert seen["gpus"][0]["busy"] == 0.5
    assert "gpus" not in seen["absent"]

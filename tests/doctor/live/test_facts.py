import json
from dataclasses import replace

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


def test_what_the_counters_say_is_listed_and_why_they_say_nothing():
    counted = dump(watch({1: "backward*50"}, gpus=(gpu(busy=100, tensor_active_percent=4.0, sm_active_percent=80.0),)))
    assert (counted["gpus"][0]["tensor_active"], counted["gpus"][0]["sm_active"]) == (0.04, 0.8)
    assert "counters of GPU 0" not in counted["absent"]
    older = dump(watch({1: "backward*50"}, gpus=(replace(gpu(busy=50), counters_absent="no permission"),)))
    assert older["absent"]["counters of GPU 0"] == "no permission"
    assert older["gpus"][0]["tensor_active"] is None

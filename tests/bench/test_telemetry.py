import threading

import pytest

from gpudoc.bench.telemetry import CounterSample, Telemetry, annotate, open_telemetry, summarise
from gpudoc.facts.gpu_counters import GpuCounters
from gpudoc.facts.model import Absent
from tests.bench.builders import reading


def look(at, **counters):
    return CounterSample(at, GpuCounters(**counters))


def test_a_reading_gets_what_was_seen_between_its_begin_and_end():
    looks = [look(1.0, sm_clock_mhz=100), look(2.0, sm_clock_mhz=1500), look(2.5, sm_clock_mhz=1700), look(9.0)]
    (annotated,) = annotate([reading(began_s=1.9, ended_s=2.6, context={"x": 1.0})], looks)
    assert annotated.context == {"x": 1.0, "sm_clock_mhz": 1600.0}


def test_the_gpus_counters_say_nothing_of_the_cpus_figures():
    looks = [look(2.0, sm_clock_mhz=1500, num_processes=3)]
    (annotated,) = annotate([reading("cpu_clock", "cpu", began_s=1.9, ended_s=2.6)], looks)
    assert annotated.context == {}


def test_a_short_reading_takes_the_looks_just_around_it_and_none_from_afar():
    looks = [look(1.0, sm_clock_mhz=100), look(2.0, sm_clock_mhz=1500)]
    near = annotate([reading(began_s=2.01, ended_s=2.02)], looks)[0]
    assert near.context["sm_clock_mhz"] == 1500.0
    assert annotate([reading(began_s=5.0, ended_s=5.01)], looks)[0].context == {}


def test_the_best_link_the_highest_heat_and_the_share_of_throttled_looks():
    seen = [
        GpuCounters(link_generation=1, link_width=16, temperature_c=60, throttle_reasons=("gpu_idle",)),
        GpuCounters(link_generation=4, link_width=16, temperature_c=80, throttle_reasons=("hw_thermal", "gpu_idle")),
        GpuCounters(link_generation=4, link_width=16, num_processes=2, throttle_reasons=Absent("not supported")),
    ]
    assert summarise(seen) == {
        "link_generation_max": 4.0,
        "link_width_max": 16.0,
        "temperature_c_max": 80.0,
        "gpu_processes_max": 2.0,
        "throttled_hw_thermal_share": pytest.approx(0.5),
    }
    assert summarise([]) == {}


def test_it_looks_until_it_is_stopped():
    third = threading.Event()
    calls = []

    def read():
        calls.append(1)
        if len(calls) == 3:
            third.set()
        return GpuCounters(power_w=100.0)

    telemetry = Telemetry(read)
    telemetry.start()
    assert third.wait(60)
    thread = telemetry._thread
    telemetry.stop()
    thread.join(60)
    assert not thread.is_alive()
    assert len(telemetry.looks) == len(calls) >= 3


def test_a_read_that_hangs_in_the_driver_holds_nothing_up():
    entered, release = threading.Event(), threading.Event()

    def hang():
        entered.set()
        release.wait()
        return GpuCounters()

    telemetry = Telemetry(hang)
    telemetry.start()
    assert entered.wait(60)
    telemetry.stop()
    assert telemetry._thread.is_alive()
    release.set()
    telemetry._thread.join()


def test_without_an_address_or_a_driver_there_is_a_reason():
    assert "PCI address" in open_telemetry("").reason

from gpudoc.bench.cases.cuda_launch import CASE
from tests.bench.host_gpu import HostGpu, bench


def test_a_queued_launch_and_one_that_is_waited_for():
    gpu = HostGpu()
    readings = list(CASE.run(bench(gpu=gpu)))
    assert [(r.name, r.unit, r.better) for r in readings] == [
        ("launch_queued", "µs", "lower"),
        ("launch_round_trip", "µs", "lower"),
    ]
    assert gpu.synchronized >= len(readings[1].samples), "every round trip waits"
    assert CASE.absent_because(bench(gpu=gpu)) == ""

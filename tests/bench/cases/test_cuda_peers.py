from gpudoc.bench.cases.cuda_peers import CASE, ordered_pairs
from tests.bench.host_gpu import HostGpu, bench


def test_every_ordered_pair_once():
    assert ordered_pairs(3) == ((0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1))
    assert ordered_pairs(1) == ()


def test_one_gpu_has_no_peer():
    assert CASE.absent_because(bench(gpu=HostGpu(), num_gpus=1)) == "there is only one GPU"
    assert CASE.absent_because(bench(gpu=HostGpu(), num_gpus=2)) == ""

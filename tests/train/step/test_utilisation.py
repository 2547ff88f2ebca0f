"""From counted FLOPs and a speed to MFU and HFU; what is not known gives no figure."""

from __future__ import annotations

import pytest
import torch

from gpudoc.train.meter.meters import Split
from gpudoc.train.step.utilisation import Cost, Peak, figures, peak_of
from gpudoc.workload.flops import Counter
from tests.train.support import metrics, summary, train_here, write_workload

PEAK = Peak(tflops=2.0, source="a sheet")


def lasting(**seconds):
    return Split.of(seconds)


def cost(batch, model=0, again=0, *, is_mixed=False):
    counter = Counter()
    counter.model, counter.again = model, again
    return Cost.of(batch, counter, is_mixed=is_mixed)


def test_mfu_is_the_models_work_over_the_peak_and_hfu_counts_what_is_done_again():
    each = cost(torch.zeros(4, 3), 4 * 10**12, 10**12)
    # 8 samples in 10 s on two devices: 0.4 samples/s each, of 1 and 1.25 TFLOP
    found = figures(each, PEAK, 8, lasting(compute=9.0, other=1.0, evaluate=5.0, checkpoint=7.0), 2)
    assert found == {"model_tflops": pytest.approx(0.4), "mfu": pytest.approx(0.2), "hfu": pytest.approx(0.25)}


def test_without_a_peak_a_count_or_a_time_there_is_no_share():
    each, seconds = cost(torch.zeros(4, 3), 4 * 10**12), lasting(compute=10.0)
    assert set(figures(each, Peak(tflops=None, source="none"), 8, seconds, 1)) == {"model_tflops"}
    assert set(figures(cost(torch.zeros(4, 3), 10**12, is_mixed=True), PEAK, 8, seconds, 1)) == {"hfu"}
    assert figures(cost(torch.zeros(4, 3)), PEAK, 8, seconds, 1) == {}
    assert figures(Cost(), PEAK, 8, seconds, 1) == {}
    assert figures(each, PEAK, 8, Split.of({}), 1) == {}


@pytest.mark.parametrize(
    ("batch", "tokens"),
    [
        ({"input_ids": torch.zeros(4, 32, dtype=torch.int64)}, 32),
        ((torch.zeros(4, 3, 8, 8), torch.zeros(4, dtype=torch.int64)), None),
        (torch.zeros(4, dtype=torch.int64), None),
    ],
)
def test_samples_of_whole_numbers_in_a_row_are_tokens(batch, tokens):
    found = figures(cost(batch), PEAK, 8, lasting(compute=2.0), 1)
    assert found.get("tokens_per_s") == (tokens and 4.0 * tokens)


def test_a_cards_peak_is_its_data_sheets(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H100 80GB HBM3")
    cuda = torch.device("cuda:0")
    assert peak_of(cuda, "bf16").tflops == 989.4
    assert peak_of(cuda, "fp32").tflops == 66.9
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        assert peak_of(cuda, "fp32").tflops == 494.7
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
    assert peak_of(cuda, "bf16") == Peak(tflops=None, source="no rate of Tesla T4 is known for bf16")
    assert peak_of(torch.device("cpu"), "fp32").tflops is None


@pytest.mark.skipif(not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="came with torch 2.9")
def test_code_that_sets_tf32_the_new_way_is_understood(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H100 80GB HBM3")
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        assert peak_of(torch.device("cuda:0"), "fp32").tflops == 494.7
    finally:
        torch.backends.cuda.matmul.fp32_precision = "ieee"
        torch.backends.cuda.matmul.allow_tf32 = False
    assert peak_of(torch.device("cuda:0"), "fp32").tflops == 66.9


def test_a_run_on_a_cpu_says_its_flops_and_that_no_peak_is_known(tmp_path, capsys):
    write_workload(tmp_path, log_every=2)
    line = ("--model", "cfg.yaml", "--no-preflight", "--profile", "off", "--steps", 4)
    assert train_here(tmp_path, *line) == 0
    use = summary(tmp_path / "runs/cfg")["use"]
    assert use["model_flops_per_sample"] > 0
    assert use["model_tflops"] > 0
    assert "mfu" not in use
    assert "no MFU: no published rate is known for a CPU" in capsys.readouterr().out
    assert all(row["model_tflops"] > 0 for row in metrics(tmp_path / "runs/cfg"))

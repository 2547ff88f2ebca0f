import pytest
import torch

from gpudoc.bench.cases import cuda_matmul
from gpudoc.bench.cases.cuda_matmul import CASE, Shape, choose_dtypes, choose_shapes, make_product, wave_shape
from gpudoc.units import GIB, MIB
from tests.bench.host_gpu import HostGpu, bench


@pytest.mark.parametrize("sm_count", [20, 46, 72, 82, 108, 128, 132, 142, 148, 170, 188])
def test_the_tiles_of_a_shape_fill_whole_waves(sm_count):
    shape = wave_shape(sm_count, 8192, 4096)
    tiles = (shape.rows // 128) * (shape.columns // 256)
    assert shape.rows % 128 == 0
    assert shape.columns % 256 == 0
    assert tiles % sm_count == 0
    assert 0.5 < shape.rows / 8192 < 2
    assert 0.5 < shape.columns / 8192 < 2


def test_a_count_that_no_shape_fills_falls_back_to_the_square():
    assert wave_shape(10**6 + 3, 2048, 2048) == Shape(2048, 2048, 2048)


def test_not_only_powers_of_two_and_small_shapes_for_small_memory():
    shapes = choose_shapes(132, 80 * GIB, quick=False)
    assert Shape(8192, 8192, 8192) in shapes
    assert any(shape.rows & (shape.rows - 1) for shape in shapes)
    assert max(shape.rows for shape in choose_shapes(10, 2 * GIB, quick=True)) <= 4096


def test_each_card_multiplies_what_it_has():
    assert choose_dtypes((7, 0)) == ("fp32", "fp16")
    assert choose_dtypes((7, 5)) == ("fp32", "fp16", "int8")
    assert choose_dtypes((8, 6)) == ("fp32", "tf32", "fp16", "bf16", "int8")
    assert "fp8" in choose_dtypes((8, 9))
    assert choose_dtypes((9, 0), quick=True) == ("fp32", "tf32", "bf16")
    assert choose_dtypes((7, 5), quick=True) == ("fp32", "fp16")


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(cuda_matmul, "choose_shapes", lambda *_: (Shape(256, 256, 128),))
    for name, value in (("REST_S", 0.0), ("SUSTAINED_S", 0.02), ("SAMPLE_S", 0.005)):
        monkeypatch.setattr(cuda_matmul, name, value)


@pytest.mark.usefixtures("small")
def test_burst_and_sustained_of_every_type_that_works():
    run = bench(gpu=HostGpu(), quick=False)
    readings = list(CASE.run(run))
    done = {(r.parameters["dtype"], r.parameters["mode"]) for r in readings}
    for dtype in ("fp32", "bf16", "int8"):
        assert {(dtype, "burst"), (dtype, "sustained")} <= done
    assert not [r.corrupted for r in readings if r.corrupted]
    assert {r.unit for r in readings if r.parameters["dtype"] == "int8"} == {"TOP/s"}


@pytest.mark.usefixtures("small")
def test_a_type_the_library_refuses_is_left_out_and_the_others_go_on(monkeypatch):
    def refuse(*_):
        raise RuntimeError("_int_mm: not on this card\nmore")

    monkeypatch.setattr(cuda_matmul, "_int8", refuse)
    run = bench(gpu=HostGpu(), quick=False)
    readings = list(CASE.run(run))
    assert ("matmul int8", "_int_mm: not on this card") in run.left_out
    assert "bf16" in {r.parameters["dtype"] for r in readings}


@pytest.mark.parametrize("dtype", ["fp32", "tf32", "fp16", "bf16", "int8", "fp8"])
def test_a_product_is_checked_against_its_own_operands(dtype):
    product = make_product(dtype, Shape(256, 512, 128), "cpu")
    product.multiply()
    assert product.check() == ""
    unmultiplied = make_product(dtype, Shape(256, 512, 128), "cpu")
    assert unmultiplied.check() != ""


def test_fp8_is_multiplied_as_training_does_with_fast_accumulation(monkeypatch):
    asked, multiply = [], torch._scaled_mm
    monkeypatch.setattr(torch, "_scaled_mm", lambda *a, **k: asked.append(k["use_fast_accum"]) or multiply(*a, **k))
    make_product("fp8", Shape(256, 512, 128), "cpu").multiply()
    assert asked == [True]


def test_too_little_memory_is_said():
    assert "1 GiB" in CASE.absent_because(bench(gpu=HostGpu(free_bytes=500 * MIB)))
    assert CASE.absent_because(bench(gpu=HostGpu(free_bytes=2 * GIB))) == ""


def test_two_seconds_of_products_are_not_called_a_test_of_the_cooling():
    said = CASE.rows["matmul"]
    assert "the power limit lowers the clocks" in said
    assert "these two seconds say nothing about the cooling" in said

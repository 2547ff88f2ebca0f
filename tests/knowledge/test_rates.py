import pytest

from gpudoc.knowledge.rates import (
    Rate,
    Unknown,
    cpu_unit_fma_per_cycle,
    find_rate,
    is_half_rate,
    nvlink_gb_per_s,
    pcie_formula,
    pcie_gb_per_s,
)
from gpudoc.knowledge.tables import read_table


def rate(capability, dtype, brand=None, device_id=None):
    found = find_rate(capability, dtype, brand, device_id)
    return found.fma_per_cycle if isinstance(found, Rate) else None


@pytest.mark.parametrize("capability", [(7, 5), (8, 6), (8, 9), (12, 0)])
def test_a_geforce_accumulates_in_fp32_at_half_the_rate_of_its_sister(capability):
    assert rate(capability, "fp16", "geforce") * 2 == rate(capability, "fp16", "nvidia")
    assert is_half_rate(capability, "geforce")
    assert not is_half_rate(capability, "nvidia-rtx")


def test_without_a_brand_a_divided_capability_is_unknown_and_an_undivided_one_is_not():
    missing = find_rate((8, 6), "bf16", None)
    assert isinstance(missing, Unknown)
    assert "full and half" in missing.because
    assert isinstance(find_rate((8, 6), "bf16", "nvs"), Unknown)
    assert rate((9, 0), "bf16") == 2048


def test_what_nobody_published_is_unknown_and_says_what():
    future = find_rate((13, 7), "bf16", "nvidia")
    assert isinstance(future, Unknown)
    assert "13.7" in future.because
    assert "bf16" in find_rate((7, 0), "bf16", "tesla").because
    assert isinstance(find_rate((8, 9), "fp8", "geforce"), Unknown)


@pytest.mark.parametrize(("capability", "known"), [((8, 7), 2048), ((10, 3), None), ((11, 0), 8192), ((12, 1), None)])
def test_newer_and_embedded_gpus_have_what_was_found_of_them(capability, known):
    assert rate(capability, "fp32", "nvidia") == 128
    assert rate(capability, "int8", "nvidia") == known


def test_blackwell_ultra_is_blackwell_in_16_bits_and_on_its_links():
    assert rate((10, 3), "bf16") == rate((10, 0), "bf16")
    assert nvlink_gb_per_s((10, 3)) == nvlink_gb_per_s((10, 0))


def test_the_l40_is_found_by_its_device_id_although_its_brand_is_that_of_the_l40s():
    assert rate((8, 9), "bf16", "nvidia", 0x26B5) == 256
    assert rate((8, 9), "bf16", "nvidia", 0x26B9) == 512


def test_a_turing_without_tensor_cores_is_known_by_its_device_id_whatever_its_brand():
    assert rate((7, 5), "fp16", "geforce", 0x2182) == 128
    assert rate((7, 5), "fp16", "quadro", 0x1FB0) == 128
    assert not is_half_rate((7, 5), "geforce", 0x2182)
    assert isinstance(find_rate((7, 5), "int8", "geforce", 0x2182), Unknown)
    assert rate((7, 5), "fp16", "geforce", 0x1E07) == 256


def test_a_cut_card_of_an_undivided_capability_is_known_by_its_device_id():
    assert (rate((9, 0), "bf16", "nvidia", 0x2329), rate((9, 0), "bf16", "nvidia", 0x2330)) == (512, 2048)


def test_only_tensor_cores_have_a_clock_of_their_own():
    assert find_rate((9, 0), "bf16", "nvidia", 0x2330).tensor_mhz == 1830
    assert find_rate((9, 0), "fp32", "nvidia", 0x2330).tensor_mhz is None
    assert find_rate((8, 0), "bf16", "nvidia", 0x20B2).tensor_mhz is None


def test_every_exception_says_which_card_it_is_and_where_that_stands():
    rows = read_table("tensor_rates.yaml", "exceptions")
    classes = {row["class"] for row in read_table("tensor_rates.yaml", "rates")}
    assert all(row["card"] and row["source"] and row["device_ids"][0] <= row["device_ids"][1] for row in rows)
    assert all("tensor_mhz" in row or row["class"] in classes for row in rows)


def test_pcie_after_encoding():
    assert pcie_gb_per_s(3, 16) == pytest.approx(15.754, abs=0.001)
    assert pcie_gb_per_s(4, 16) == pytest.approx(31.508, abs=0.001)
    assert pcie_gb_per_s(5, 8) == pytest.approx(31.508, abs=0.001)
    assert pcie_gb_per_s(1, 16) == pytest.approx(4.0)
    assert pcie_gb_per_s(9, 16) is None
    assert "128/130" in pcie_formula(4, 16)
    assert pcie_formula(9, 16) == ""


def test_links_and_cpu_units():
    assert nvlink_gb_per_s((9, 0)) == pytest.approx(26.5625)
    assert nvlink_gb_per_s((8, 9)) is None
    assert cpu_unit_fma_per_cycle(frozenset({"amx_bf16", "avx2"}), "bf16") == 512
    assert cpu_unit_fma_per_cycle(frozenset({"amx_bf16"}), "fp32") is None
    assert cpu_unit_fma_per_cycle(frozenset({"avx2"}), "bf16") is None


def test_every_row_names_its_source_and_no_row_stands_twice():
    rows = read_table("tensor_rates.yaml", "rates")
    assert all(str(row["source"]).strip() for row in rows)
    names = [(row["capability"], row["class"]) for row in rows]
    assert len(set(names)) == len(names)

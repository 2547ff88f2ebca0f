import pytest

from gpudoc.errors import GpudocError
from gpudoc.knowledge.cards import cards, context_bytes, context_range, cublas_workspace_bytes, find_card, require_card
from gpudoc.knowledge.tables import read_table
from gpudoc.units import GIB, MIB


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("RTX 3090", "RTX 3090"),
        ("rtx3090", "RTX 3090"),
        ("NVIDIA GeForce RTX 3090", "RTX 3090"),
        ("NVIDIA A100-SXM4-40GB", "A100 40GB"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("Tesla T4", "T4"),
        ("a100", "A100 80GB"),
    ],
)
def test_a_card_is_found_under_the_names_people_and_drivers_use(text, name):
    assert require_card(text).name == name


# no page was found that says what their tensor cores make of 16 bits, without sparsity
WITHOUT_A_SOURCE = ("GB10",)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("NVIDIA B300 SXM6 AC", "B300"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("NVIDIA H20", "H20"),
        ("NVIDIA L20", "L20"),
        ("NVIDIA GeForce RTX 5060 Ti", "RTX 5060 Ti 16GB"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000 Blackwell"),
        ("NVIDIA GB10", "GB10"),
        ("Orin", "Jetson AGX Orin 64GB"),
        ("NVIDIA Thor", "Jetson AGX Thor"),
    ],
)
def test_newer_hardware_is_known_as_nvml_names_it(text, name):
    assert require_card(text).name == name


def test_memory_that_is_the_hosts_and_links_inside_a_package_are_said():
    assert [card.name for card in cards() if card.shares_host] == [
        "GB10",
        "Jetson AGX Orin 64GB",
        "Jetson AGX Thor",
    ]
    assert require_card("GH200").host_gb_per_s == 450
    # 18 NVLinks of the fifth generation
    assert require_card("B300").link_gb_per_s == pytest.approx(956, abs=1)


def test_an_unknown_card_names_the_nearest_ones():
    assert find_card("RTX 309") is None
    with pytest.raises(GpudocError, match="unknown card: 'RTX 309'") as raised:
        require_card("RTX 309")
    assert "'RTX 3090'" in raised.value.hint


def test_nonsense_gets_a_hint_without_a_guess():
    with pytest.raises(GpudocError) as raised:
        require_card("zzzzzz")
    assert "did you mean" not in raised.value.hint


def test_every_row_says_where_its_memory_is_from():
    assert all(row["memory_from"] for row in read_table("cards.yaml", "cards"))


@pytest.mark.parametrize("card", cards(), ids=lambda card: card.name)
def test_every_row_is_plausible_and_says_where_it_is_from(card):
    assert 4 * GIB < card.memory_bytes < 300 * GIB
    assert 200 <= card.bandwidth_gb_per_s <= 10_000
    assert card.source
    assert card.tflops["fp32"] > 0
    half = card.tflops.get("fp16", card.tflops["fp32"])
    assert half >= card.tflops.get("tf32", 0), "dense rates: 16 bits are never slower than TF32"
    has_bf16 = card.capability >= (8, 0)
    assert ("bf16" in card.tflops) == (has_bf16 and card.name not in WITHOUT_A_SOURCE)


def test_dense_rates_agree_with_the_number_of_multiprocessors():
    # 82 SMs of a 3090 at 1.695 GHz do 2 x 128 float32 operations per cycle
    assert require_card("RTX 3090").tflops["fp32"] == pytest.approx(82 * 1.695e9 * 256 / 1e12, rel=0.01)
    # 108 SMs of an A100 at 1.41 GHz do 2 x 1024 bfloat16 operations per cycle
    assert require_card("A100").tflops["bf16"] == pytest.approx(108 * 1.41e9 * 2048 / 1e12, rel=0.01)


def test_the_context_is_known_by_capability_and_the_largest_otherwise():
    assert context_range((7, 5)) == (100 * MIB, 197 * MIB)
    assert context_bytes((7, 5)) == 197 * MIB
    assert context_bytes(None) == context_bytes((9, 0)) == context_bytes((12, 1))


def test_cublas_takes_32_mib_from_hopper_on():
    assert cublas_workspace_bytes((8, 6)) == 8_519_680
    assert cublas_workspace_bytes((12, 0)) == cublas_workspace_bytes(None) == 32 * MIB


def test_links_are_those_of_the_boards_that_have_some_and_pcie_elsewhere():
    found = {name: require_card(name) for name in ("H100", "A100", "RTX 4090", "T4")}
    # 18 NVLinks of 26.5625 GB/s, and 12 of 25
    assert found["H100"].link_gb_per_s == pytest.approx(478.1, abs=0.1)
    assert found["A100"].link_gb_per_s == 300
    # 16 lanes: 64, 32 and 16 GT/s less the encoding
    assert found["H100"].host_gb_per_s == pytest.approx(63.0, abs=0.1)
    assert found["RTX 4090"].link_gb_per_s == found["RTX 4090"].host_gb_per_s == pytest.approx(31.5, abs=0.1)
    assert found["T4"].link_gb_per_s == pytest.approx(15.8, abs=0.1)

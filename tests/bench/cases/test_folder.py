import os

import pytest

from gpudoc.bench.cases import folder
from gpudoc.bench.cases.folder import CASE, evict, find_files, read_gb_per_s, resident_share
from gpudoc.units import MIB
from tests.bench.host_gpu import bench


@pytest.fixture
def data(tmp_path):
    (tmp_path / "inner").mkdir()
    for index in range(4):
        (tmp_path / "inner" / f"{index}.bin").write_bytes(os.urandom(MIB))
    (tmp_path / "empty").touch()
    return tmp_path


def test_files_are_found_below_without_empty_ones_and_up_to_a_size(data):
    assert [path.name for path in find_files(data, 100 * MIB)] == ["0.bin", "1.bin", "2.bin", "3.bin"]
    assert len(find_files(data, 2 * MIB)) == 2
    assert len(find_files(data, 1)) == 1


def test_what_was_read_is_resident_and_what_was_evicted_is_not(data):
    files = find_files(data, 100 * MIB)
    assert read_gb_per_s(files, 2, 10.0) > 0
    assert resident_share(files) == 1.0
    evict(files)
    left = resident_share(files)
    # a file system in memory keeps its pages; then a cold read must not be claimed
    assert left == 1.0 or left < folder.COLD_SHARE


def test_cold_and_warm_are_told_apart_by_the_page_cache(data):
    readings = list(CASE.run(bench(device="cpu", data=str(data), budget_s=0.2)))
    states = [r.parameters["cache"] for r in readings]
    assert states[1] == "warm"
    assert states[0] in ("cold", "unknown")
    assert (states[0] == "cold") == (readings[0].context["resident_share"] < folder.COLD_SHARE)


def test_when_the_kernel_keeps_the_pages_the_read_is_not_called_cold(data, monkeypatch):
    monkeypatch.setattr(folder, "evict", lambda files: None)
    read_gb_per_s(find_files(data, 100 * MIB), 1, 10.0)
    first = next(iter(CASE.run(bench(device="cpu", data=str(data), budget_s=0.2))))
    assert first.parameters["cache"] == "unknown"
    assert first.context["resident_share"] > 0.9


def test_no_folder_and_an_empty_folder_say_so(tmp_path):
    assert "--data" in CASE.absent_because(bench(device="cpu"))
    assert "no readable file" in CASE.absent_because(bench(device="cpu", data=str(tmp_path)))

from gpudoc.facts.caches import last_level_cache_bytes
from gpudoc.facts.model import Absent

MIB = 1024**2


def cache(root, cpu, index, level, size, shared):
    folder = root / "sys/devices/system/cpu" / f"cpu{cpu}" / "cache" / f"index{index}"
    folder.mkdir(parents=True)
    for name, text in (("level", level), ("size", size), ("shared_cpu_list", shared)):
        (folder / name).write_text(f"{text}\n")


def test_instances_of_the_last_level_are_counted_once_each(tmp_path):
    for cpu, shared in ((0, "0-1"), (1, "0-1"), (2, "2-3"), (3, "2-3")):
        cache(tmp_path, cpu, 0, 2, "1024K", str(cpu))
        cache(tmp_path, cpu, 1, 3, "32M", shared)
    assert last_level_cache_bytes(tmp_path) == 64 * MIB


def test_without_a_third_level_the_second_is_the_last(tmp_path):
    cache(tmp_path, 0, 0, 1, "32K", "0")
    cache(tmp_path, 0, 1, 2, "2048K", "0")
    assert last_level_cache_bytes(tmp_path) == 2 * MIB


def test_nonsense_and_nothing_are_absent(tmp_path):
    assert isinstance(last_level_cache_bytes(tmp_path), Absent)
    cache(tmp_path, 0, 0, 3, "huge", "0")
    assert isinstance(last_level_cache_bytes(tmp_path), Absent)

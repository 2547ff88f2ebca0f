import os
import time
from pathlib import Path

from gpudoc.tune.trial.sweep import clean_up_after_the_dead, sweep_shared_memory


def test_shared_memory_of_dead_processes_is_swept_and_of_others_is_not():
    mine = Path("/dev/shm/torch_999999_1_0")
    alive = Path(f"/dev/shm/torch_{os.getpid()}_1_0")
    mine.write_text("x")
    alive.write_text("x")
    try:
        sweep_shared_memory(0, time.time() - 60)
        assert mine.exists()
        sweep_shared_memory(2, time.time() - 60)
        assert not mine.exists()
        assert alive.exists()
    finally:
        mine.unlink(missing_ok=True)
        alive.unlink(missing_ok=True)


def test_folders_of_killed_searches_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "gpudoc-tune-999999-abc").mkdir()
    (tmp_path / f"gpudoc-tune-{os.getpid()}-abc").mkdir()
    clean_up_after_the_dead()
    assert [p.name for p in tmp_path.iterdir()] == [f"gpudoc-tune-{os.getpid()}-abc"]

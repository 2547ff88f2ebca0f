import os
import subprocess
import sys
import time

from gpudoc.facts.live import tree
from gpudoc.facts.model import Absent


def test_a_name_with_spaces_and_brackets_does_not_shift_the_fields(tmp_path):
    folder = tmp_path / "7"
    folder.mkdir()
    fields = ["S", "1", *["0"] * 7, "12", "0", "250", "50", *["0"] * 4, "3", "0", "9000", "0"]
    (folder / "stat").write_text("7 (odd ) name) " + " ".join(fields))
    stat = tree.read_stat(7, root=str(tmp_path))
    assert stat is not None
    assert (stat.name, stat.state, stat.parent, stat.major_faults, stat.num_threads) == ("odd ) name", "S", 1, 12, 3)
    assert stat.cpu_s == 300 / tree.TICKS


def test_a_process_that_ended_is_none_and_nothing_raises(tmp_path):
    assert tree.read_stat(12345, root=str(tmp_path)) is None
    assert tree.read_words(12345, str(tmp_path)) == ()
    assert tree.descendants(12345, str(tmp_path)) == [12345]


def test_only_named_variables_leave_the_environment(tmp_path):
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "environ").write_bytes(b"RANK=3\0SECRET=abc\0OMP_NUM_THREADS=4\0")
    assert dict(tree.read_environment(7, ("RANK", "OMP_NUM_THREADS"), str(tmp_path))) == {
        "RANK": "3",
        "OMP_NUM_THREADS": "4",
    }


def test_the_longest_mount_point_decides():
    mounts = tree.read_mounts("/dev/sda / ext4 rw\nserver:/d /data nfs4 rw\ntmpfs /data/fast tmpfs rw\n")
    assert tree.kind_of_mount("/data/a.jpg", mounts) == "nfs4"
    assert tree.kind_of_mount("/data/fast/a.jpg", mounts) == "tmpfs"
    assert tree.kind_of_mount("/database/a.jpg", mounts) == "ext4"
    assert tree.kind_of_mount("/x", ()) == "unknown"


def test_a_job_of_two_processes_is_told_apart_by_what_each_uses(tmp_path):
    code = "import os, sys, time\nif os.fork() == 0:\n    while True: pass\nr, w = os.pipe()\nos.read(r, 1)\n"
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True) as job:
        try:
            time.sleep(0.5)
            sampler = tree.TreeSampler(job.pid)
            sampler.measure()
            for _ in range(15):
                time.sleep(0.1)
                sampler.glance()
            sampler.weigh()
            sampler.measure()
            assert sampler.is_alive()
            tracks = {t.pid: t for t in sampler.tracks()}
            child = next(t for t in tracks.values() if t.parent == job.pid)
            parent = tracks[job.pid]
            assert child.cpu_s > parent.cpu_s
            assert child.running > 5
            assert parent.blocked == {"read pipe": parent.looks - parent.running}
            assert isinstance(child.queued_s, float)
            assert child.private_bytes
            assert child.memory
            assert isinstance(child.rank, Absent)
        finally:
            os.killpg(job.pid, 9)
    assert not sampler.is_alive()

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
            _until_it_forked(job)
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
            assert child.pages[0].mapped_bytes >= child.pages[0].own_bytes > 0
            assert child.memory
            assert isinstance(child.rank, Absent)
        finally:
            os.killpg(job.pid, 9)
    assert not sampler.is_alive()


COPIES = """
import gc, os, sys
gc.disable()
rows = [("a row of text", float(n)) for n in range(400_000)]
if os.fork() == 0:
    for step in range(4):
        sys.stdin.readline()
        # reading alone writes the reference counts of the objects
        for row in rows[step * 100_000 : (step + 1) * 100_000]:
            row[1]
        print("read", flush=True)
    os._exit(0)
os.wait()
"""


def _until_it_forked(job):
    until = time.monotonic() + 60
    while len(tree.descendants(job.pid)) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    assert len(tree.descendants(job.pid)) == 2


def test_reading_shared_objects_copies_their_pages():
    with subprocess.Popen(
        [sys.executable, "-c", COPIES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as job:
        try:
            sampler = tree.TreeSampler(job.pid)
            _until_it_forked(job)
            sampler.measure()
            sampler.weigh()
            for _ in range(3):
                job.stdin.write("\n")
                job.stdin.flush()
                assert job.stdout.readline() == "read\n"
                sampler.weigh()
            child = next(t for t in sampler.tracks() if t.parent == job.pid)
        finally:
            os.killpg(job.pid, 9)
    own = [p.own_bytes for p in child.pages]
    assert sorted(own) == own
    assert own[-1] - own[0] > 4 << 20
    assert child.pages[-1].mapped_bytes - child.pages[0].mapped_bytes < 4 << 20


def test_the_trainer_of_a_job_without_workers_is_the_process_that_works():
    code = "import os, sys\nif os.fork() == 0:\n    while True: pass\nos.wait()\n"
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True) as job:
        try:
            sampler = tree.TreeSampler(job.pid)
            _until_it_forked(job)
            sampler.measure()
            child = next(pid for pid in tree.descendants(job.pid) if pid != job.pid)
            until = time.monotonic() + 60
            while sampler.lone_trainer() != child and time.monotonic() < until:
                time.sleep(0.1)
                sampler.measure()
            assert sampler.lone_trainer() == child
        finally:
            os.killpg(job.pid, 9)


def test_a_job_with_loader_workers_has_no_lone_trainer():
    name = "import ctypes; ctypes.CDLL(None).prctl(15, b'pt_data_worker', 0, 0, 0)"
    code = f"{name}; import time; print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as job:
        try:
            job.stdout.readline()
            sampler = tree.TreeSampler(job.pid)
            assert sampler.lone_trainer() is None
            sampler.measure()
            assert sampler.lone_trainer() is None
        finally:
            job.kill()

"""The sbatch files: valid bash, what they ask for, and their flow with srun and scontrol played by scripts."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gpudoc.fleet.slurm import write_bench_job, write_doctor_job
from gpudoc.process.arguments import AS_MODULE

# srun: the command once for each of two nodes; the second one's doctor writes nothing
SRUN = """#!/bin/bash
while [ "${1#--}" != "$1" ]; do shift; done
worst=0
for node in 0 1; do SLURM_NODEID=$node "$@" || worst=$?; done
exit $worst
"""


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    scripts = {"srun": SRUN, "scontrol": "#!/bin/bash\nprintf 'n1\\nn2\\n'\n"}
    for name, text in scripts.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
    return tmp_path


def test_the_bench_job_repeats_the_command_line_on_whole_nodes(tmp_path):
    said = write_bench_job(
        tmp_path / "job.sh", ["--across", "--slurm", "job.sh", "--out", "my fleet.json", "--plain"], on_gpu=True
    )
    rows = (tmp_path / "job.sh").read_text().splitlines()
    assert "sbatch" in said
    assert rows[0] == "#!/bin/bash"
    assert "#SBATCH --ntasks-per-node=1" in rows
    assert any(row.startswith("#SBATCH --gpus-per-node=8") for row in rows)
    run = f"{sys.executable} {' '.join(AS_MODULE)} gpudoc bench --across --out 'my fleet.json' --plain"
    assert rows[-1] == f"srun --kill-on-bad-exit=0 --wait=0 --cpu-bind=none {run}"
    assert subprocess.run(["bash", "-n", str(tmp_path / "job.sh")], check=False).returncode == 0


def test_a_job_for_cpus_asks_for_no_gpu(tmp_path):
    write_bench_job(tmp_path / "job.sh", ["--across", "--device", "cpu"], on_gpu=False)
    assert "gpus" not in (tmp_path / "job.sh").read_text()


def test_doctor_on_every_node_compares_them_and_its_code_is_the_worst(cluster, monkeypatch):
    # what stands for Python: doctor on a node writes its report, and the second node finds something
    fake = cluster / "bin" / "python"
    fake.write_text(
        '#!/bin/bash\nif [ -z "$SLURM_NODEID" ]; then echo "compared ${*: -2:1} ${*: -1}"; exit 0; fi\n'
        'while [ "$1" != --out ]; do shift; done\necho "node $SLURM_NODEID speaks"\n'
        'echo {} > "$2"; exit $SLURM_NODEID\n'
    )
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    write_doctor_job(cluster / "job.sh", ["--quick", "--slurm", "job.sh"], on_gpu=True)
    done = subprocess.run(["bash", str(cluster / "job.sh")], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "node 0 speaks" in done.stdout
    assert "node 1 speaks" in done.stdout
    assert "compared" in done.stdout
    assert "doctor-7/1.json" in done.stdout


def test_a_node_that_does_not_answer_is_told_and_makes_the_code_1(cluster, monkeypatch):
    fake = cluster / "bin" / "python"
    fake.write_text(
        '#!/bin/bash\n[ "$SLURM_NODEID" = 0 ] || exit 0\nwhile [ "$1" != --out ]; do shift; done\necho {} > "$2"\n'
    )
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    write_doctor_job(cluster / "job.sh", [], on_gpu=False)
    done = subprocess.run(["bash", str(cluster / "job.sh")], capture_output=True, text=True, check=False)
    assert "only 1 of 2 nodes answered" in done.stdout
    assert done.returncode == 1

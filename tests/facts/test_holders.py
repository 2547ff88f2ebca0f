from __future__ import annotations

import os

import pytest

from gpudoc.facts.holders import describe
from gpudoc.facts.model import Absent

ID = "3f2a91c04d17" + "0" * 52
HZ = os.sysconf("SC_CLK_TCK")


@pytest.fixture
def root(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "etc").mkdir()
    rows = ("root:x:0:0::/root:/bin/sh", "ann:x:4242:4242::/home/ann:/bin/sh", f"me:x:{os.getuid()}::")
    (tmp_path / "etc/passwd").write_text("\n".join(rows) + "\n")
    (tmp_path / "proc/uptime").write_text("10000.00 5.0\n")
    return tmp_path


def process(root, pid=4711, *, uid=4242, line="python\0train.py\0", groups="0::/user.slice\n", opened=("nvidia0",)):
    place = root / f"proc/{pid}"
    (place / "fd").mkdir(parents=True)
    (place / "comm").write_text("python\n")
    (place / "status").write_text(f"Name:\tpython\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    (place / "stat").write_text(f"{pid} (a (b) c) S {'1 ' * 18}{4000 * HZ} 0 0\n")
    (place / "cmdline").write_text(line)
    (place / "cgroup").write_text(groups)
    for number, name in enumerate(opened):
        (place / "fd" / str(number)).symlink_to(f"/dev/{name}")
    return describe(pid, root)


def test_user_age_and_program_without_arguments(root):
    line = "/home/ann/venv/bin/python3\0-u\0/home/ann/secret/train.py\0--token\0hf_abc\0"
    told = process(root, line=line)
    assert (told.user, told.command, told.age_s) == ("ann", "python3 train.py", 6000.0)
    assert told.own is False
    assert isinstance(told.container, Absent)


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("python\0-m\0torch.distributed.run\0x.py\0", "python -m torch.distributed.run"),
        ("/usr/bin/python3.11\0/usr/local/bin/vllm\0serve\0", "python3.11 vllm"),
        ("/opt/llama/server\0--api-key\0x\0", "server"),
        ("python\0-c\0import torch; key='abc'\0", "python"),
    ],
)
def test_only_the_program_and_its_script_are_kept(root, line, command):
    assert process(root, line=line).command == command


@pytest.mark.parametrize(
    ("groups", "container"),
    [
        (f"0::/system.slice/docker-{ID}.scope\n", "docker 3f2a91c04d17"),
        (f"12:memory:/docker/{ID}\n", "docker 3f2a91c04d17"),
        (f"0::/user.slice/user-1000.slice/libpod-{ID}.scope\n", "podman 3f2a91c04d17"),
        (
            "0::/kubepods.slice/kubepods-pod0a1b2c3d_1111_2222_3333_444455556666.slice/cri-containerd-" + ID + ".scope",
            "kubernetes 0a1b2c3d-1111-2222-3333-444455556666",
        ),
        ("0::/lxc.payload.trainer/init\n", "lxc trainer"),
    ],
)
def test_containers_by_their_cgroup(root, groups, container):
    assert process(root, groups=groups).container == container


def test_docker_calls_a_container_by_a_name(root):
    folder = root / f"var/lib/docker/containers/{ID}"
    folder.mkdir(parents=True)
    (folder / "config.v2.json").write_text('{"ID": "x", "Name": "/ann-train"}')
    assert process(root, groups=f"0::/docker/{ID}\n").container == "docker 3f2a91c04d17 (ann-train)"


@pytest.mark.parametrize(
    "groups", ["8:memory:/slurm/uid_4242/job_88/step_0\n", "0::/system.slice/slurmstepd.scope/job_88/step_0/user\n"]
)
def test_the_job_of_slurm(root, groups):
    assert process(root, groups=groups).job == "slurm 88"


def test_own_is_only_what_the_caller_owns_and_has_a_gpu_open(root):
    assert process(root, 1, uid=os.getuid()).own is True
    assert isinstance(process(root, 2, uid=os.getuid(), opened=("null",)).own, Absent)
    assert process(root, 3, uid=0 if os.getuid() else 5).own is False


def test_behind_sudo_the_caller_is_who_called_it(root, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setenv("SUDO_UID", "4242")
    assert process(root, 1).own is True
    assert process(root, 2, uid=0).own is False


def test_a_process_that_cannot_be_seen_says_so_for_each_part(root):
    assert describe(999, root).alive == Absent("/proc hides other users' processes")
    process(root, 1)
    told = describe(999, root)
    assert told.alive is False
    assert all(isinstance(part, Absent) for part in (told.name, told.user, told.own, told.age_s, told.command))

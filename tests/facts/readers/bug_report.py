"""A text in the shape of what `nvidia-bug-report.sh` writes, of any length, well unless lines of trouble are given."""

from __future__ import annotations

from tests.facts.readers.test_smi_query import whole

RULE = "____________________________________________\n\n"


def bug_report(*kernel_lines: str, gpus: int = 8, padding: int = 0, query: str = "") -> str:
    devices = "".join(
        f"{0x17 + 16 * n:02x}:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330] (rev a1)\n"
        "\tControl: I/O- Mem+ BusMaster+ SpecCycle- MemWINV- VGASnoop- ParErr- Stepping- SERR- FastB2B- DisINTx+\n"
        "\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported\n"
        "\t\tLnkSta:\tSpeed 32GT/s, Width x16\n"
        "\tKernel driver in use: nvidia\n\tKernel modules: nvidiafb, nouveau, nvidia_drm, nvidia\n"
        for n in range(gpus)
    )
    boot = "".join(
        f"[   12.{n:06d}] systemd[1]: Started unit number {n} of the machine, {'abcdefgh'[n % 8]}\n"
        for n in range(padding)
    )
    kernel = "[    8.100000] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n"
    trouble = "".join(f"{line}\n" for line in kernel_lines)
    return "".join(
        (
            RULE,
            "Start of NVIDIA bug report log file.  Please include this file, along\n"
            "with a detailed description of your problem, when reporting a graphics\n"
            "driver bug via the NVIDIA Linux forum (see forums.developer.nvidia.com/c/gpu-graphics/linux)\n\n"
            "nvidia-bug-report.sh Version: 34275561\n\nDate: Thu Nov 19 10:00:00 UTC 2026\n"
            "uname: Linux node1 6.8.0-45-generic #45-Ubuntu SMP x86_64\ncommand line flags: \n\n",
            RULE,
            "*** /proc/driver/nvidia/./version\n"
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs-builder@U22)\n"
            "GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n\n",
            RULE,
            "*** /etc/modprobe.d/blacklist-nouveau.conf\nblacklist nouveau\noptions nouveau modeset=0\n\n",
            RULE,
            f"/usr/bin/lspci -vvv\n\n{devices}\n",
            RULE,
            f"/usr/bin/dmesg\n\n{kernel}{boot}{trouble}{boot}\n",
            RULE,
            f"/usr/bin/nvidia-smi --query\n\n{query or whole(*['Full'] * gpus)}\n",
            RULE,
            f"journalctl -b -0\n\n{boot}\n",
            RULE,
            "End of NVIDIA bug report log file.\n",
        )
    )

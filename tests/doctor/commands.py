"""The rules that every command which doctor prints must keep, whatever it is for."""

from __future__ import annotations

import re

from gpudoc.doctor.model import Remedy, Setting
from gpudoc.facts.model import Absent

DISRUPTIVE = re.compile(
    r"--gpu-reset|\breboot\b|rmmod|modprobe -r|systemctl (?:stop|restart) (?:nvidia-fabricmanager|docker)|docker restart"
    r"|kubectl drain|wsl (?:--update && wsl )?--shutdown|-mig 0|poweroff|shutdown -"
)
LISTS = re.compile(r"--query-compute-apps|fuser -v|docker ps|docker top|^ps -e")
CHANGES = re.compile(r"nvidia-smi\b(?![^;&|]*\s(?:-q|--query|-L)\b)[^;&|\n]*\s(?:-pl|-c|-mig|mig .*-cgi)\b[^;&|\n]*")


def check(steps: tuple[Remedy, ...], setting: Setting, name: str) -> None:
    """Every rule that a printed command must keep, whatever it is for."""
    names = {str(c.index) if isinstance(c.index, int) else c.pci_address for c in setting.cards}
    listed = False
    for step in steps:
        for group in re.findall(r"(?:nvidia-smi|dcgmi)[^;&|\n]*?\s-i\s+([\w:.,-]+)", f"{step.run}\n{step.say}"):
            assert set(group.split(",")) <= names, (name, step)
        for mask in re.findall(r"CUDA_VISIBLE_DEVICES=([\d,]+)", step.run):
            assert not set(mask.split(",")) & names, (name, step)
            assert max(map(int, mask.split(","))) < (setting.num_gpus or 0), (name, step)
        for index, limit in re.findall(r"-i (\d+) -pl (\d+)", step.run):
            (card,) = [c for c in setting.cards if c.index == int(index)]
            assert not isinstance(card.facts, Absent), (name, step)
            assert card.facts.power_limit_min_w <= int(limit) <= card.facts.power_limit_max_w, (name, step)
        for command in CHANGES.findall(step.run):
            assert " -i " in command, (name, step)
        assert not re.search(r"/dev/nvidia\d", step.run), (name, step)
        if "EnableGpuFirmware=0" in step.run:
            assert setting.open_module is False, (name, step)
            assert setting.capability is not None, (name, step)
            assert setting.capability < (10, 0), (name, step)
        if DISRUPTIVE.search(step.run):
            assert step.disruptive, (name, step)
        if step.disruptive:
            assert listed, (name, step)
        listed = listed or bool(LISTS.search(step.run))

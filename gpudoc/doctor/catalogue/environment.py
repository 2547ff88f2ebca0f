"""Causes of the family environment that concern GPU, driver and system."""

from __future__ import annotations

from gpudoc.doctor.model import Cause
from gpudoc.doctor.remedies import by_place, do

CAUSES: tuple[Cause, ...] = (
    Cause(
        id="no_gpu_on_machine",
        family="environment",
        title="There is no GPU here",
        meaning="the session or job simply has no GPU: a CPU runtime, or a scheduler that gave none",
        why="Without a device everything runs on the CPU: fine when that is meant, hopeless when it is not.",
        fix=by_place(
            (do("If this machine should have a GPU, look for it on the bus.", "lspci | grep -i -e nvidia -e amd"),),
            colab=(do("Runtime > Change runtime type > choose a GPU, then run all cells again."),),
            notebook=(do("Choose a runtime or server option with a GPU in the settings of the notebook service."),),
            slurm=(do("Ask the scheduler for one.", "srun --gres=gpu:1 --pty nvidia-smi"),),
            kubernetes=(do("Ask for one in the container's resources: limits: nvidia.com/gpu: 1"),),
        ),
        sources=("https://docs.pytorch.org/docs/stable/notes/cuda.html",),
    ),
)

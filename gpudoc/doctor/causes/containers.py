"""Containers, WSL and permissions: who was given the GPU, as texts show it."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.sign import quote, text_finder, words
from gpudoc.doctor.model import Evidence, Finding, Skip
from gpudoc.doctor.vocabulary import Listed
from gpudoc.facts.readers.model import Text

DOCKER = Listed("docker")
WITHOUT_GPU_OPTION = Listed("docker-run-without-gpu")

_SCHEDULER = words(r"\bslurm\w*", r"#SBATCH|\bsbatch\b|\bsrun\b", r"\bqsub\b|#PBS\b|\bbsub\b")
_GPU_ASKED_FOR = words(
    r"--gres[ =]|--gpus\S*[ =]|gpu:\d|ngpus|is_available\(\)\W{0,8}True", r"\bMIG\b", "version mismatch"
)
_NO_DRIVER_IN_JOB = words(
    r"couldn.t communicate with the NVIDIA driver", r"nvidia-smi\W{0,3}:? ?(?:command )?not found"
)


def _find_job_without_gpu(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """A job that the scheduler put on a node without a GPU: it asked for none, and there is no driver to speak to."""
    del evidence
    job, dead = text.find(_SCHEDULER), text.find(_NO_DRIVER_IN_JOB)
    if job and dead and text.find(_GPU_ASKED_FOR) is None:
        yield Finding(
            id="no_gpu_on_machine",
            confidence=0.82,
            evidence=(quote(job, "scheduler"), quote(dead, "in the job")),
            explains=("driver_missing_or_not_loaded",),
        )


FINDERS = (text_finder("no_gpu_on_machine", _find_job_without_gpu),)

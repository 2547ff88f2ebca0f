"""This process's rank and the meeting place, read from the variables that srun, torchrun or mpirun set."""

from __future__ import annotations

import os
import socket
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpudoc.errors import GpudocError
from gpudoc.fleet.record import Engine
from gpudoc.patterns import ASCII, Pattern

# an engine's names for RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE; torchrun's come first, since engines can
# be nested: inside torchrun in a step of SLURM both are set
_NAMES: tuple[tuple[Engine, tuple[str, str, str, str]], ...] = (
    ("torchrun", ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")),
    (
        "mpirun",
        (
            "OMPI_COMM_WORLD_RANK",
            "OMPI_COMM_WORLD_SIZE",
            "OMPI_COMM_WORLD_LOCAL_RANK",
            "OMPI_COMM_WORLD_LOCAL_SIZE",
        ),
    ),
    ("mpirun", ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")),
    ("srun", ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "")),
)
_HOST = Pattern(r"[A-Za-z0-9][\w.-]{0,252}", ASCII)
# where processes of one machine meet
LOOPBACK = "127.0.0.1"
_NO_MEETING = "MASTER_ADDR and MASTER_PORT must say where the processes meet"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePlace:
    """One process of the engine: its rank among `world`, and where rank 0's store is.

    `nodes` are the hosts that the engine named, empty if it named none; `agent_store` means that torchrun keeps the
    store. `attempt` distinguishes a restarted run from the previous one.
    """

    engine: Engine
    rank: int = 0
    world: int = 1
    local_rank: int = 0
    host: str = ""
    address: str = LOOPBACK
    port: int = 0
    nodes: tuple[str, ...] = ()
    agent_store: bool = False
    attempt: str = "0"


def find_place(environment: Mapping[str, str] | None = None) -> EnginePlace:
    """This process's place; alone if no engine started it. GpudocError for impossible numbers."""
    variables = os.environ if environment is None else environment
    # in a pod the host name is the pod's name; the manifest in docs/fleet.md names the node
    host = variables.get("SLURMD_NODENAME") or variables.get("NODE_NAME") or socket.gethostname()
    for engine, names in _NAMES:
        rank, world, local, beside = names
        # srun sets hydra's PMI_RANK, too; only the engine that started this process sets its local rank
        if rank in variables and world in variables and (engine == "torchrun" or local in variables):
            break
    else:
        return EnginePlace(engine="none", host=host)
    try:
        place = EnginePlace(
            engine=engine,
            rank=int(variables[rank]),
            world=int(variables[world]),
            local_rank=int(variables.get(local, "0")),
            host=host,
            nodes=expand_hosts(variables.get("SLURM_STEP_NODELIST", "")),
            agent_store=variables.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
            attempt=variables.get("TORCHELASTIC_RESTART_COUNT", "0"),
        )
        num_here = int(variables.get(beside) or 0)
    except ValueError as problem:
        raise GpudocError(f"{rank}, {world} or {local} is not a number: {problem}") from None
    if not 0 <= place.rank < place.world:
        raise GpudocError(f"{rank} {place.rank} of {world} {place.world} cannot be", hint="start it with a launcher")
    if place.world == 1:
        return EnginePlace(engine=engine, host=host, nodes=place.nodes)
    return _with_meeting(place, num_here, variables)


def _with_meeting(place: EnginePlace, num_here: int, variables: Mapping[str, str]) -> EnginePlace:
    address, port = variables.get("MASTER_ADDR"), variables.get("MASTER_PORT", "")
    if address and port.isdecimal():
        return replace(place, address=address, port=int(port))
    if place.engine == "torchrun":
        raise GpudocError(f"RANK is set, and {_NO_MEETING}", hint="start it with torchrun")
    if place.nodes:
        # ranks are numbered from the first node on, unless the user asked srun for another order
        return replace(place, address=address or place.nodes[0], port=_port_of(variables))
    if num_here == place.world:
        return replace(place, port=_port_of(variables))
    raise GpudocError(
        f"{place.world} processes on several nodes, and {_NO_MEETING}",
        hint="mpirun -x MASTER_ADDR=HOST_OF_RANK_0 -x MASTER_PORT=29500 ... gpudoc bench --across",
    )


def _port_of(variables: Mapping[str, str]) -> int:
    """A port that all processes of this job compute independently, and that another job is unlikely to get."""
    job = variables.get("SLURM_JOB_ID", "")
    if job.isdecimal():
        # the same port as in the sbatch file of `gpudoc train --slurm`; a second step of the job uses the next one
        step = variables.get("SLURM_STEP_ID", "0")
        return 20000 + (int(job) + (int(step) if step.isdecimal() else 0)) % 20000
    name = variables.get("PMIX_NAMESPACE") or variables.get("OMPI_MCA_ess_base_jobid") or variables.get("PMI_ID", "")
    return 20000 + zlib.crc32(name.encode()) % 20000


def is_host(text: str) -> bool:
    """Whether a text can be the name of a host, and is therefore safe as a word in a script."""
    return _HOST.fullmatch(text) is not None


def expand_hosts(text: str) -> tuple[str, ...]:
    """The hosts of a SLURM list: 'n[01-03,7],login' is n01, n02, n03, n7 and login (`scontrol show hostnames`)."""
    hosts: list[str] = []
    for word in Pattern(r"(?:[^,\[]|\[[^\[\]]*\])+").findall(text):
        hosts += _expand(word)
    return tuple(hosts)


def _expand(word: str) -> list[str]:
    head, bracket, rest = word.partition("[")
    if not bracket:
        return [word]
    inside, _, tail = rest.partition("]")
    numbers: list[str] = []
    for part in inside.split(","):
        first, dash, last = part.partition("-")
        if dash and first.isdecimal() and last.isdecimal():
            numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
        else:
            numbers.append(part)
    return [head + number + end for number in numbers for end in _expand(tail)]

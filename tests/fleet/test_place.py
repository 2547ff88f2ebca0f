"""Where a process finds its place: the variables of each engine, one node's and several nodes'."""

from __future__ import annotations

import pytest

from gpudoc.errors import GpudocError
from gpudoc.fleet.place import expand_hosts, find_place

SRUN = {
    "SLURM_PROCID": "3",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NODELIST": "gpu[07-08]",
    "SLURMD_NODENAME": "gpu08",
    "SLURM_JOB_ID": "41005",
    "SLURM_STEP_ID": "2",
}
TORCHRUN = {
    "RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "10.0.0.7",
    "MASTER_PORT": "4711",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
    "TORCHELASTIC_RESTART_COUNT": "1",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}


def test_without_an_engine_a_process_is_alone():
    place = find_place({})
    assert (place.engine, place.rank, place.world, place.address) == ("none", 0, 1, "127.0.0.1")


def test_srun_says_the_rank_the_hosts_and_so_where_the_first_one_is():
    place = find_place(SRUN)
    assert (place.engine, place.rank, place.world, place.local_rank, place.host) == ("srun", 3, 4, 1, "gpu08")
    assert place.nodes == ("gpu07", "gpu08")
    assert place.address == "gpu07"
    # 20000 + 41005 % 20000 as the training's sbatch file has it, and two on for the second step of the job
    assert place.port == 21007
    assert not place.agent_store


def test_what_the_user_says_of_the_meeting_beats_what_is_guessed():
    place = find_place({**SRUN, "MASTER_ADDR": "10.1.1.1", "MASTER_PORT": "5000"})
    assert (place.address, place.port) == ("10.1.1.1", 5000)


def test_torchrun_keeps_the_store_and_tells_its_restarts_apart():
    place = find_place(TORCHRUN)
    assert (place.engine, place.rank, place.world) == ("torchrun", 1, 2)
    assert (place.address, place.port, place.agent_store, place.attempt) == ("10.0.0.7", 4711, True, "1")


def test_torchrun_inside_a_step_of_slurm_is_torchrun_and_the_hosts_are_known():
    place = find_place({**SRUN, **TORCHRUN})
    assert (place.engine, place.rank, place.nodes) == ("torchrun", 1, ("gpu07", "gpu08"))


def test_mpirun_on_one_node_meets_here():
    place = find_place({**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "4", "PMIX_NAMESPACE": "prterun-1"})
    assert (place.engine, place.rank, place.world, place.address) == ("mpirun", 2, 4, "127.0.0.1")
    assert 20000 <= place.port < 40000


def test_mpirun_on_several_nodes_says_what_to_export():
    with pytest.raises(GpudocError, match="several nodes") as caught:
        find_place(OPEN_MPI)
    assert "-x MASTER_ADDR" in caught.value.hint
    place = find_place({**OPEN_MPI, "MASTER_ADDR": "first", "MASTER_PORT": "29500"})
    assert (place.address, place.port) == ("first", 29500)


def test_a_step_of_srun_with_pmi_is_not_taken_for_hydra():
    assert find_place({**SRUN, "PMI_RANK": "3", "PMI_SIZE": "4"}).engine == "srun"
    hydra = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
    assert find_place(hydra).engine == "mpirun"


def test_the_batch_shell_of_a_job_is_alone():
    # sbatch sets SLURM_PROCID in the batch shell, and no number of tasks of a step
    assert find_place({"SLURM_PROCID": "0", "SLURM_NTASKS": "16", "SLURM_JOB_ID": "7"}).engine == "none"


@pytest.mark.parametrize(
    ("change", "said"),
    [({"SLURM_PROCID": "4"}, "cannot be"), ({"SLURM_PROCID": "x"}, "not a number"), ({"SLURM_PROCID": "-1"}, "cannot")],
)
def test_numbers_that_cannot_be_are_refused(change, said):
    with pytest.raises(GpudocError, match=said):
        find_place({**SRUN, **change})


def test_torchrun_without_a_meeting_is_refused():
    with pytest.raises(GpudocError, match="MASTER_ADDR"):
        find_place({"RANK": "0", "WORLD_SIZE": "2"})


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("", ()),
        ("login", ("login",)),
        ("n[01-03,7],login", ("n01", "n02", "n03", "n7", "login")),
        ("rack[1-2]n[09-10]", ("rack1n09", "rack1n10", "rack2n09", "rack2n10")),
        ("a[1]b,c", ("a1b", "c")),
    ],
)
def test_lists_of_hosts_are_expanded_as_scontrol_does(text, hosts):
    assert expand_hosts(text) == hosts

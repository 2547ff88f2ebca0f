from gpudoc.facts.model import Absent
from gpudoc.facts.numa import cpus_of_node, nodes_of_process


def write(root, node, text):
    folder = root / f"sys/devices/system/node/node{node}"
    folder.mkdir(parents=True)
    (folder / "cpulist").write_text(text)


def test_spans_and_single_cpus(tmp_path):
    write(tmp_path, 1, "4-6,9,12-13\n")
    assert cpus_of_node(1, tmp_path) == (4, 5, 6, 9, 12, 13)


def test_no_such_node_and_nonsense_are_absent(tmp_path):
    assert isinstance(cpus_of_node(0, tmp_path), Absent)
    write(tmp_path, 0, "all of them")
    assert isinstance(cpus_of_node(0, tmp_path), Absent)


def allow(root, spans):
    folder = root / "proc/self"
    folder.mkdir(parents=True)
    (folder / "status").write_text(f"Name:\tpython\nCpus_allowed_list:\t{spans}\nMems_allowed_list:\t0-1\n")


def test_the_nodes_of_a_process_are_those_of_its_cpus(tmp_path):
    write(tmp_path, 0, "0-7\n")
    write(tmp_path, 1, "8-15\n")
    allow(tmp_path, "9,12-13")
    assert nodes_of_process(tmp_path) == (1,)


def test_a_process_that_may_run_everywhere_has_all_nodes(tmp_path):
    write(tmp_path, 0, "0-7\n")
    write(tmp_path, 1, "8-15\n")
    allow(tmp_path, "0-15")
    assert nodes_of_process(tmp_path) == (0, 1)


def test_without_nodes_there_is_a_reason(tmp_path):
    allow(tmp_path, "0-3")
    assert isinstance(nodes_of_process(tmp_path), Absent)

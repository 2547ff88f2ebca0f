from gpudoc.facts.model import Absent
from gpudoc.facts.numa import cpus_of_node


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

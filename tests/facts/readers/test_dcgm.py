from __future__ import annotations

import json

import pytest

from gpudoc.facts.model import Absent
from gpudoc.facts.readers import read
from gpudoc.facts.readers.intake import read_all

HEAD = """Successfully ran diagnostic for group.
+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
"""
NEW = (
    HEAD
    + """|-----  Metadata  ----------+------------------------------------------------|
| DCGM Version              | 4.4.2                                          |
| Driver Version Detected   | 580.105.08                                     |
| GPU Device IDs Detected   | 2330, 2330                                     |
|-----  Deployment  --------+------------------------------------------------|
| software                  | Pass                                           |
|                           | GPU0: Pass                                     |
|                           | GPU1: Pass                                     |
+-----  Hardware  ----------+------------------------------------------------+
| memory                    | Fail                                           |
|                           | GPU0: Pass                                     |
|                           | GPU1: Fail                                     |
| Warning: GPU1             | GPU 1 has an uncorrectable memory error and a  |
|                           |  row remapping is pending                      |
+-----  Stress  ------------+------------------------------------------------+
| targeted_power            | Skip                                           |
|                           | GPU0: Skip                                     |
+---------------------------+------------------------------------------------+
"""
)
OLD = (
    HEAD
    + """|-----  Deployment  --------+------------------------------------------------|
| Denylist                  | Pass                                           |
| Page Retirement/Row Remap | Pass                                           |
+-----  Hardware  ----------+------------------------------------------------+
| GPU Memory                | Pass - GPUs: 1, 2, 3                           |
|                           | Fail - GPU: 0                                  |
| Warning                   | GPU 0 Thermal violations totaling 13.3 second  |
|                           | s started at 9.7 seconds into the test         |
+-----  Integration  -------+------------------------------------------------+
| PCIe                      | Pass - All                                     |
+---------------------------+------------------------------------------------+
"""
)


def results(text):
    tests = read(text).machine.tests
    return [] if isinstance(tests, Absent) else [(t.name, t.gpu, t.result) for t in tests]


def bad(text):
    return [(name, gpu) for name, gpu, result in results(text) if result == "fail"]


def test_the_table_of_dcgm_4_names_test_gpu_result_message_and_driver():
    reading = read(NEW)
    assert bad(NEW) == [("memory", 1)]
    (failed,) = [t for t in reading.machine.tests if t.result == "fail"]
    assert failed.message == "GPU 1 has an uncorrectable memory error and a row remapping is pending"
    assert failed.origin == "line 16"
    assert reading.machine.driver.module_version == "580.105.08"
    assert ("targeted power", 0, "skip") in results(NEW)
    assert "dcgmi_diag" in reading.recognised


def test_the_table_of_dcgm_2_names_gpus_in_the_result_and_cuts_words_in_two():
    assert bad(OLD) == [("gpu memory", 0)]
    (failed,) = [t for t in read(OLD).machine.tests if t.result == "fail"]
    assert failed.message.startswith("GPU 0 Thermal violations totaling 13.3 seconds started")
    assert ("gpu memory", 3, "pass") in results(OLD)


def test_a_failed_run_without_any_gpu_is_kept_without_one():
    ((name, gpu, result),) = results("| NVML Library              | Fail                                           |")
    assert (name, result) == ("nvml library", "fail")
    assert isinstance(gpu, Absent)
    told = results(
        '{"DCGM Diagnostic" : {"runtime_error" : "Error: Diagnostic could not be run", "version" : "4.4.2"}}'
    )
    assert told[0][2] == "fail"


def document(status="Fail"):
    def entity(number, status, warnings=()):
        row = {"entity_group": "GPU", "entity_group_id": 1, "entity_id": number, "status": status}
        return {**row, "warnings": list(warnings)} if warnings else row

    warning = {"error_category": 4, "error_id": 5, "error_severity": 2, "warning": "GPU 2 failed the memory test"}
    rows = [entity(0, "Pass"), entity(1, "Pass"), entity(2, status, [warning])]
    test = {"name": "memory", "results": rows, "test_summary": {"status": status}}
    software = {"name": "software", "results": [entity(n, "Pass") for n in range(3)]}
    categories = [{"category": "Deployment", "tests": [software]}, {"category": "Hardware", "tests": [test]}]
    return {"DCGM Diagnostic": {"test_categories": categories}, "metadata": {"Driver Version Detected": "580.105.08"}}


@pytest.mark.parametrize("indent", [None, 3])
def test_json_says_the_same_styled_or_in_one_line(indent):
    text = json.dumps(document(), indent=indent)
    assert bad(text) == [("memory", 2)]
    assert read(text).machine.driver.module_version == "580.105.08"
    assert bad(json.dumps(document("Pass"), indent=indent)) == []


def test_json_of_dcgm_2_has_gpu_id_and_a_text_as_warning():
    old = {
        "DCGM GPU Diagnostic": {
            "test_categories": [
                {
                    "category": "Hardware",
                    "tests": [
                        {
                            "name": "GPU Memory",
                            "results": [
                                {"gpu_id": "0", "status": "Pass"},
                                {"gpu_id": "5", "status": "Fail", "warnings": "it failed"},
                            ],
                        }
                    ],
                }
            ]
        }
    }
    assert bad(json.dumps(old, indent=2)) == [("gpu memory", 5)]


HEALTH = """+---------------------------+----------------------------------------------------------+
| Health Monitor Report                                                                |
+===========================+==========================================================+
| Overall Health            | Failure                                                  |
| GPU                       |                                                          |
| -> 0                      | Warning                                                  |
|    -> Errors              |                                                          |
|       -> PCIe system      | Warning                                                  |
|                           | Detected more than 8 PCIe replays per minute for GPU 0   |
|                           | on this machine.                                         |
| -> 3                      | Failure                                                  |
|    -> Errors              |                                                          |
|       -> NVLINK system    | Failure                                                  |
|                           | NVLink 4 of GPU 3 is down.                               |
+---------------------------+----------------------------------------------------------+
"""


def test_the_health_report_names_gpu_system_and_message():
    assert results(HEALTH)[1:] == [("pcie system", 0, "warn"), ("nvlink system", 3, "fail")]
    tests = read(HEALTH).machine.tests
    assert tests[1].message == "Detected more than 8 PCIe replays per minute for GPU 0 on this machine."
    healthy = HEALTH.split("| GPU  ")[0].replace("Failure", "Healthy")
    assert results(healthy) == [("overall health", tests[0].gpu, "pass")]


def test_the_health_report_as_json():
    system = {"children": {"NVLINK system": {"overflow": ["NVLink 4 is down"], "value": "Failure"}}}
    gpu = {"children": {"3": {"children": {"Errors": system}, "value": "Failure"}}}
    text = json.dumps(
        {"body": {"GPU": gpu, "Overall Health": {"value": "Failure"}}, "header": ["Health Monitor Report"]}
    )
    assert ("nvlink system", 3) in bad(text)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_windows_line_ends_and_other_encodings(end, encoding):
    assert bad(NEW.replace("\n", end).encode(encoding).decode(encoding)) == [("memory", 1)]
    tests = read(NEW.replace("\n", end).encode(encoding)).machine.tests
    assert [t.gpu for t in tests if t.result == "fail"] == [1]


def test_escaped_coloured_quoted_and_within_prose():
    assert bad(json.dumps(NEW)) == [("memory", 1)]
    assert bad("".join(f"\x1b[32m{line}\x1b[0m\n" for line in NEW.splitlines())) == [("memory", 1)]
    assert bad("".join(f"> {line}\n" for line in NEW.splitlines())) == [("memory", 1)]
    assert bad(f"Bonjour, la carte 1 échoue :\n```\n{NEW}```\nMerci !") == [("memory", 1)]


def test_cut_off_at_any_line_it_names_no_other_gpu():
    lines = NEW.splitlines()
    for first in range(len(lines)):
        for last in (len(lines), len(lines) - 3):
            text = "\n".join(["a log", *lines[first:last]])
            assert {gpu for _, gpu in bad(text) if not isinstance(gpu, Absent)} <= {1}


def test_a_table_of_something_else_is_no_diagnosis():
    assert results("| Test | Result |\n|------|--------|\n| login | Fail |\n| 3 | Fail |") == []


def test_eight_gpus_of_json_are_read_whole():
    big = document()
    test = big["DCGM Diagnostic"]["test_categories"][1]["tests"][0]
    test["results"] = [{"entity_group": "GPU", "entity_id": n, "status": "Pass"} for n in range(8)] * 12
    test["results"][50] = {"entity_group": "GPU", "entity_id": 6, "status": "Fail"}
    test["test_summary"] = {"status": "Fail"}
    assert bad(json.dumps(big, indent=3)) == [("memory", 6)]


def test_json_that_is_cut_off_is_no_pass():
    whole = json.dumps(document("Pass"), indent=3)
    for size in (len(whole) // 3, len(whole) // 2, len(whole) - 5):
        assert ("the report itself", "fail") in [(name, result) for name, _, result in results(whole[:size])]
    assert bad(whole) == []
    assert bad(f"Look {{here}}:\n{whole}\nthanks }}") == []


def test_rows_of_another_input_are_not_of_the_gpu_above():
    first, second = HEALTH.split("|    -> Errors ")[0], "|       -> NVLINK system  | Failure |\n"
    machine = read_all([("a", first.encode()), ("b", second.encode())]).machine
    assert [t.gpu for t in machine.tests if t.name == "nvlink system" and t.gpu == 0] == []

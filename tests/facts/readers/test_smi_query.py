from __future__ import annotations

import pytest

from gpudoc.facts.model import Absent
from gpudoc.facts.readers import read
from gpudoc.facts.readers.intake import read_all
from gpudoc.units import MIB

HEAD = """==============NVSMI LOG==============

Timestamp                                 : Thu Nov 19 10:00:00 2026
Driver Version                            : 580.65.06
CUDA Version                              : 13.0

Attached GPUs                             : {count}
"""
SECTIONS = """GPU 00000000:{bus:02X}:00.0
    GPU Recovery Action                   : None
    MIG Mode
        Current                           : Disabled
        Pending                           : Enabled
    Performance State                     : P0
    Clocks Event Reasons
        Idle                              : Not Active
        SW Power Cap                      : Active
        HW Thermal Slowdown               : Not Active
        SW Thermal Slowdown               : Not Active
    Clocks Event Reasons Counters
        SW Thermal Slowdown               : 12 us
    FB Memory Usage
        Total                             : 81559 MiB
        Reserved                          : 551 MiB
        Used                              : 70000 MiB
        Free                              : 11559 MiB
    BAR1 Memory Usage
        Total                             : 131072 MiB
    Utilization
        GPU                               : 97 %
        Memory                            : 55 %
    ECC Mode
        Current                           : Enabled
        Pending                           : Enabled
    Temperature
        GPU Current Temp                  : 64 C
        GPU Slowdown Temp                 : 92 C
    GPU Power Readings
        Average Power Draw                : 412.30 W
        Current Power Limit               : 650.00 W
        Default Power Limit               : 700.00 W
    Module Power Readings
        Average Power Draw                : 900.00 W
        Current Power Limit               : 1000.00 W
    Clocks
        Graphics                          : 1755 MHz
        SM                                : 1755 MHz
        Memory                            : 2619 MHz
    Max Clocks
        SM                                : 1980 MHz
    Processes
        GPU instance ID                   : N/A
        Process ID                        : 4711
            Type                          : C
            Name                          : /home/ann/venv/bin/python
            Used GPU Memory               : 69000 MiB
    Fabric
        State                             : Completed
        Status                            : Success
        Health
            Bandwidth                     : {bandwidth}
            Route Unhealthy               : False
"""


def whole(*bandwidths):
    parts = [SECTIONS.format(bus=0x17 + 16 * n, bandwidth=b) for n, b in enumerate(bandwidths)]
    return HEAD.format(count=len(parts)) + "".join(parts)


def test_every_section_gives_its_facts():
    (gpu,) = read(whole("Full")).machine.gpus
    assert (gpu.mig_enabled, gpu.mig_pending, gpu.ecc_enabled, gpu.ecc_pending) == (False, True, True, True)
    assert (gpu.performance_state, gpu.utilization_percent) == (0, 97)
    assert gpu.throttle_reasons == ("sw_power_cap",)
    assert (gpu.memory_used_bytes, gpu.memory_free_bytes) == (70000 * MIB, 11559 * MIB)
    assert (gpu.temperature_c, gpu.temperature_slowdown_c) == (64, 92)
    assert (gpu.power_w, gpu.power_limit_w, gpu.power_limit_default_w) == (412.3, 650.0, 700.0)
    assert (gpu.sm_clock_mhz, gpu.sm_clock_max_mhz) == (1755, 1980)
    assert gpu.fabric_state == "completed"
    assert isinstance(gpu.recovery_action, Absent)
    (process,) = gpu.processes
    assert (process.pid, process.name, process.memory_bytes) == (4711, "python", 69000 * MIB)


def test_eight_gpus_are_read_whole_and_only_the_right_one_is_unwell():
    machine = read(whole(*["Full"] * 6, "Degraded", "Full")).machine
    assert [gpu.power_limit_w for gpu in machine.gpus] == [650.0] * 8
    assert [gpu.sm_clock_max_mhz for gpu in machine.gpus] == [1980] * 8
    assert [(t.gpu, t.name) for t in machine.tests if t.result == "fail"] == [(6, "bandwidth")]


def test_a_query_given_twice_is_of_the_same_gpus():
    assert len(read(whole("Full", "Full") * 2).machine.gpus) == 2


def test_the_table_beside_it_says_the_number_of_a_gpu():
    table = "|   5  NVIDIA H100 80GB HBM3          On  |   00000000:17:00.0 Off |                    0 |\n"
    assert [gpu.index for gpu in read(table + whole("Full")).machine.gpus] == [5]


def test_a_section_without_its_heading():
    (gpu,) = read("    GPU Power Readings\n        Current Power Limit   : 150.00 W\n").machine.gpus
    assert gpu.power_limit_w == 150.0


@pytest.mark.parametrize(("said", "action"), [("Reset", 1), ("Reboot", 2), ("Drain and Reset", 4)])
def test_what_the_driver_asks_for(said, action):
    text = whole("Full").replace("Action                   : None", f"Action                   : {said}")
    assert read(text).machine.gpus[0].recovery_action == action


def test_the_same_as_xml():
    xml = """<?xml version="1.0" ?>
<nvidia_smi_log>
\t<driver_version>580.65.06</driver_version>
\t<gpu id="00000000:17:00.0">
\t\t<product_name>NVIDIA H100 80GB HBM3</product_name>
\t\t<clocks_event_reasons>
\t\t\t<clocks_event_reason_hw_thermal_slowdown>Active</clocks_event_reason_hw_thermal_slowdown>
\t\t\t<clocks_event_reason_sw_power_cap>Not Active</clocks_event_reason_sw_power_cap>
\t\t</clocks_event_reasons>
\t\t<fb_memory_usage>
\t\t\t<total>81559 MiB</total>
\t\t</fb_memory_usage>
\t\t<temperature>
\t\t\t<gpu_temp>91 C</gpu_temp>
\t\t</temperature>
\t\t<processes>
\t\t\t<process_info>
\t\t\t\t<pid>4711</pid>
\t\t\t\t<process_name>/usr/bin/python3</process_name>
\t\t\t\t<used_memory>100 MiB</used_memory>
\t\t\t</process_info>
\t\t</processes>
\t</gpu>
\t<gpu id="00000000:27:00.0">
\t\t<product_name>NVIDIA H100 80GB HBM3</product_name>
\t</gpu>
"""
    first, second = read(xml).machine.gpus
    assert first.throttle_reasons == ("hw_thermal_slowdown",)
    assert (first.memory_total_bytes, first.temperature_c) == (81559 * MIB, 91)
    assert [(p.pid, p.name) for p in first.processes] == [(4711, "python3")]
    assert second.name == "NVIDIA H100 80GB HBM3"
    assert isinstance(second.temperature_c, Absent)


def test_lines_that_are_missing_in_the_middle_are_not_given_to_the_gpu_above():
    lines = whole("Full", "Full").splitlines()
    cut = ["", *lines[:20], *["x " * 3] * 2, *[""] * 30, *[line for line in lines[60:] if "GPU 0000" not in line]]
    machine = read("\n".join(cut)).machine
    assert isinstance(machine.gpus[0].power_limit_w, Absent)


def test_windows_line_ends_and_utf16():
    data = whole("Full").replace("\n", "\r\n").encode("utf-16")
    assert read(data).machine.gpus[0].power_limit_w == 650.0


def test_another_input_does_not_go_on_with_the_gpu_of_the_first():
    other = b"    GPU Power Readings\n        Current Power Limit   : 150.00 W\n        Minor thing  : 3\n"
    first = HEAD.format(count=1) + "GPU 00000000:17:00.0\n    Product Name   : NVIDIA L4\n"
    machine = read_all([("a.txt", first.encode()), ("b.txt", other)]).machine
    assert isinstance(machine.gpus[0].power_limit_w, Absent)

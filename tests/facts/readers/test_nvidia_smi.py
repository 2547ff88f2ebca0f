from __future__ import annotations

from gpudoc.facts.model import Absent
from gpudoc.facts.readers import read
from gpudoc.units import MIB

TABLE = """
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 525.125.06   Driver Version: 525.125.06   CUDA Version: 12.0     |
|-------------------------------+----------------------+----------------------+
|   0  NVIDIA GeForce ...  Off  | 00000000:01:00.0 Off |                  N/A |
| 30%   45C    P2   120W / 350W |  11000MiB / 24576MiB |     37%   E. Process |
|                               |                      |                  N/A |
|   1  Tesla V100-PCIE...  On   | 00000000:02:00.0 Off |                    0 |
| N/A   39C    P0    25W / 250W |      0MiB / 32768MiB |      0%      Default |
+-------------------------------+----------------------+----------------------+
| Processes:                                                                  |
|    0   N/A  N/A      4711      C   /home/someone/venv/bin/python   10990MiB |
+-----------------------------------------------------------------------------+
"""
QUERY = """
==============NVSMI LOG==============
Driver Version                            : 550.54.15
CUDA Version                              : 12.4
Attached GPUs                             : 1
GPU 00000000:17:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    MIG Mode
        Current                           : Enabled
        Pending                           : Enabled
    PCI
        GPU Link Info
            PCIe Generation
                Max                       : 5
                Current                   : 1
            Link Width
                Max                       : 16x
                Current                   : 8x
    FB Memory Usage
        Total                             : 81559 MiB
        Used                              : 1024 MiB
    Compute Mode                          : Exclusive_Process
    Remapped Rows
        Correctable Error                 : 0
        Uncorrectable Error               : 2
        Pending                           : Yes
        Remapping Failure Occurred        : No
    ECC Errors
        Volatile
            SRAM Correctable              : 0
            DRAM Uncorrectable            : 4
    Clocks Event Reasons
        HW Thermal Slowdown               : Active
    Temperature
        GPU Current Temp                  : 91 C
"""


def test_the_table_counts_errors_of_the_memory_where_the_card_can():
    consumer, server = read(TABLE.replace("|                    0 |", "|                    3 |")).machine.gpus
    assert isinstance(consumer.ecc_uncorrected_volatile, Absent)
    assert server.ecc_uncorrected_volatile == 3


def test_the_table_gives_driver_gpus_memory_modes_and_processes():
    reading = read(TABLE)
    machine = reading.machine
    assert machine.driver.module_version == "525.125.06"
    assert machine.driver.cuda_version == (12, 0)
    first, second = machine.gpus
    assert first.pci_address == "00000000:01:00.0"
    assert first.memory_used_bytes == 11000 * MIB
    assert first.memory_free_bytes == 13576 * MIB
    assert first.compute_mode == "exclusive_process"
    assert first.utilization_percent == 37
    assert first.power_limit_w == 350.0
    assert second.temperature_c == 39
    (process,) = first.processes
    assert (process.pid, process.name, process.memory_bytes) == (4711, "python", 10990 * MIB)
    assert "nvidia_smi" in reading.recognised


def test_the_query_gives_links_modes_and_memory_errors():
    (gpu,) = read(QUERY).machine.gpus
    assert gpu.name == "NVIDIA H100 80GB HBM3"
    assert gpu.mig_enabled is True
    assert (gpu.link.width, gpu.link.width_max, gpu.link.generation, gpu.link.generation_max) == (8, 16, 1, 5)
    assert gpu.rows_remap_pending is True
    assert gpu.rows_remap_failed is False
    assert gpu.rows_remapped_uncorrectable == 2
    assert gpu.ecc_uncorrected_volatile == 4
    assert gpu.compute_mode == "exclusive_process"
    assert gpu.throttle_reasons == ("hw_thermal_slowdown",)
    assert gpu.temperature_c == 91
    assert gpu.memory_total_bytes == 81559 * MIB


def test_xml_and_the_list_name_the_same_gpu():
    xml = (
        '<?xml version="1.0" ?>\n<nvidia_smi_log>\n\t<driver_version>550.54.15</driver_version>\n\t<gpu id="00000000:17:00.0">\n'
        "\t\t<product_name>NVIDIA L4</product_name>\n\t\t<fb_memory_usage>\n\t\t\t<total>23034 MiB</total>\n\t\t</fb_memory_usage>\n"
    )
    machine = read(xml).machine
    assert machine.driver.module_version == "550.54.15"
    assert machine.gpus[0].name == "NVIDIA L4"
    assert machine.gpus[0].memory_total_bytes == 23034 * MIB
    listed = read("GPU 0: NVIDIA L4 (UUID: GPU-5f2d1c)").machine.gpus
    assert listed[0].name == "NVIDIA L4"

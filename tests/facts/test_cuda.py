from __future__ import annotations

from gpudoc.facts.model import Absent
from tests.fakes.machine import H100, FakeMachine


def fake(tmp_path):
    machine = FakeMachine(tmp_path / "m")
    machine.driver("580.65.06", (13, 0))
    machine.gpus(H100, 2)
    return machine


def test_devices_and_their_attributes(tmp_path):
    driver = fake(tmp_path).collect(quick=True).driver
    assert (driver.cu_init_code, driver.cu_init_name, driver.libcuda_cuda_version) == (0, "CUDA_SUCCESS", (13, 0))
    assert [(d.ordinal, d.pci_address, d.sm_count) for d in driver.cuda_devices] == [
        (0, "0000:17:00.0", 132),
        (1, "0000:27:00.0", 132),
    ]
    assert driver.cuda_devices[0].capability == (9, 0)
    assert driver.libcuda_path.endswith("/cuda/libcuda.so.1")


def test_a_failing_cu_init_has_its_code_and_name(tmp_path):
    machine = fake(tmp_path)
    machine.error("cuInit", 802)
    driver = machine.collect(quick=True).driver
    assert (driver.cu_init_code, driver.cu_init_name) == (802, "CUDA_ERROR_SYSTEM_NOT_READY")
    assert isinstance(driver.cuda_devices, Absent)


def test_no_libcuda_is_absent_with_the_loaders_words(tmp_path):
    machine = fake(tmp_path)
    machine.libraries["cuda"] = False
    code = machine.collect(quick=True).driver.cu_init_code
    assert isinstance(code, Absent)
    assert code.reason.startswith("libcuda cannot be loaded")

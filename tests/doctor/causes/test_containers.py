from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, ids, report_of

CASES = [
    ("container_without_gpu_access", "$ docker run -it pytorch/pytorch ipython\nIn [2]: torch.cuda.is_available()\nOut[2]: False"),
    ("container_without_gpu_access", "在 docker 容器里 torch.cuda.is_available() 为 False"),
    ("container_toolkit_missing", "docker: Error response from daemon: failed to discover GPU vendor from CDI: no known GPU vendor found"),
    ("container_without_gpu_access", "podman run -it image\nRuntimeError: Found no NVIDIA driver on your system."),
    ("device_permission_denied", ">>> torch.cuda.is_available()\nFalse\n$ sudo python -c 'import torch; print(torch.cuda.is_available())'\nTrue"),
    ("device_permission_denied", "open('/dev/nvidiactl') failed: Permission denied"),
    ("wsl_wrong_driver_inside", "In WSL2 libcuda.so comes from libnvidia-compute-535, ldconfig -p shows /usr/lib/x86_64-linux-gnu/libcuda.so.1"),
    ("container_lost_gpu_cgroup", "Our pod runs for a week, then nvidia-smi says 'NVML init error: Unknown', a new pod works"),
    ("driver_missing_or_not_loaded", "docker: nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown."),
    ("driver_missing_or_not_loaded", "attempting to load dxcore to see if we are running under Windows Subsystem for Linux (WSL)\n"
     "dxcore initialization failed, continuing assuming a non-WSL environment\nnvidia-container-cli: initialization error: "
     "load library failed: libnvidia-ml.so.1: cannot open shared object file"),
    ("visible_devices_hides_gpu", "nvidia-container-cli: device error: GPU-1234: unknown device: unknown"),
    ("container_toolkit_missing", "Our k3s node: the device plugin says could not load NVML library and that I should set the runtime"),
    ("container_toolkit_missing", "kubelet: no runtime for \"nvidia\" is configured"),
    ("container_toolkit_missing", "The nvidia container toolkit is not installed on this host, and docker finds no gpu"),
    ("no_gpu_on_machine", "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."),
    ("no_gpu_on_machine", "INFO:    Could not find any nv files on this host!\ntorch says no GPU"),
    ("no_gpu_on_machine", "sbatch job.sh, in the job: NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."),
    ("container_without_gpu_access", "apptainer exec image.sif python train.py\nRuntimeError: Found no NVIDIA driver on your system."),
    ("container_without_gpu_access", "With docker compose the service cannot see the gpu, I start it as the README says"),
    ("device_permission_denied", "As my own user torch finds nothing; the gpu cannot be used unless I become root"),
    ("device_permission_denied", "rocminfo: user is not member of \"render\" group, the default DRM access group"),
    ("wsl_wrong_driver_inside", "On WSL2 nvidia-smi prints CUDA Version: ERR! and torch fails"),
    ("wsl_wrong_driver_inside", 'Inside WSL I installed nvidia-driver-535 with apt, since then nvidia-smi and torch do not work '
     'there; on Windows everything is fine'),
    ("wsl_windows_or_kernel_too_old", 'Windows 10 build 19042, WSL2 kernel 4.19.128-microsoft-standard: torch does not see the GPU'),
    ("container_toolkit_missing", 'docker: Error response from daemon: could not select device driver "" with capabilities: '
     '[[gpu]]. I have no nvidia-docker installed.'),
    ("container_toolkit_missing", 'podman: Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all'),
    ("container_without_gpu_access", "I run my image with a plain docker run and inside of it torch doesn't find the card, on the "
     'host it does'),
    ("container_without_gpu_access", 'Inside the singularity image nvidia-smi is not found; do I have to bind the driver libraries '
     'myself? Outside it works.'),
    ("container_without_gpu_access", 'The pod has no nvidia.com/gpu limit in its spec, and in it torch.cuda.is_available() is False'),
    ("no_gpu_on_machine", 'I ran it on the login node of our cluster and it says there is no NVIDIA driver.'),
    ("no_gpu_on_machine", 'In my slurm job echo $CUDA_VISIBLE_DEVICES prints nothing, and torch has no GPU; I forgot '
     '--gres=gpu:1 in the script'),
    ("device_permission_denied", 'ls -l /dev/kfd\n'
     'crw-rw---- 1 root render 235, 0\n'
     "my user isn't in the render group, torch with rocm finds nothing"),
    ("device_permission_denied", 'Failed to initialize NVML: Insufficient Permissions'),
    ("container_lost_gpu_cgroup", 'After some days in the running container all CUDA calls fail and nvidia-smi there gives Failed '
     'to initialize NVML: Unknown Error; restarting the container helps'),
    ('container_toolkit_missing', 'nvidia-device-plugin daemonset is Running, but the pod stays Pending: 0/2 nodes are available: 2 Insufficient nvidia.com/gpu'),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "text"), CASES)
def test_who_was_given_the_gpu(cause, text):
    assert first(text) == cause, [(f.id, f.confidence) for f in report_of(text).findings]


def test_a_job_with_a_gpu_of_its_own_blames_the_driver():
    text = "#SBATCH --gres=gpu:1\nNVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    assert first(text) == "driver_missing_or_not_loaded"


def test_a_container_that_was_given_the_gpu_is_no_fault():
    text = "docker run --gpus all image\n>>> torch.cuda.is_available()\nTrue\nstep 3 loss 2.1"
    assert report_of(text).verdict == "healthy", ids(text)

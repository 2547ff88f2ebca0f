"""Causes around driver, system and containers, as they show in reports and on machines."""

from __future__ import annotations

from gpudoc.doctor.disruption import reboot, reload_modules, restart_wsl, then
from gpudoc.doctor.model import Cause, Setting
from gpudoc.doctor.remedies import always, by_place, do, driver_update

_CHAIN = "https://docs.nvidia.com/deploy/cuda-compatibility/"
_TOOLKIT = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html"
_WSL = "https://docs.nvidia.com/cuda/wsl-user-guide/index.html"

CAUSES: tuple[Cause, ...] = (
    Cause(
        id="no_gpu_on_machine",
        family="environment",
        title="There is no GPU here",
        meaning="the session or job simply has no GPU: a CPU runtime, or a scheduler that gave none",
        why="Without a device everything runs on the CPU: fine when that is meant, hopeless when it is not.",
        fix=by_place(
            (do("Look for the GPU on the bus, if this machine should have one.", "lspci | grep -i -e nvidia -e amd"),),
            colab=(do("Choose a GPU under Runtime > Change runtime type, then run all cells again."),),
            notebook=(do("Choose a runtime or server option with a GPU in the settings of the notebook service."),),
            slurm=(do("Ask the scheduler for a GPU.", "srun --gres=gpu:1 --pty nvidia-smi"),),
            kubernetes=(do("Ask for a GPU in the container's resources: limits: nvidia.com/gpu: 1"),),
        ),
        sources=("https://docs.pytorch.org/docs/stable/notes/cuda.html",),
        explains=("training_on_cpu",),
    ),
    Cause(
        id="driver_missing_or_not_loaded",
        family="environment",
        title="The NVIDIA driver is not installed, or its module is not loaded",
        meaning="no driver package, or its module is not loaded, for whatever reason",
        why="Every CUDA program reaches the GPU through the kernel module; without it there is no device.",
        fix=by_place(
            (
                do("Check that the module is there and loads.", "sudo modprobe nvidia && nvidia-smi", root=True),
                do("Install the distribution's driver if it is not there.", "sudo ubuntu-drivers install", root=True),
                do("Rebuild the module after a kernel update.", "sudo dkms autoinstall", root=True),
            ),
            docker=(do("Install the driver on the host, and check it there, outside the container.", "nvidia-smi"),),
            wsl=(
                do("Install the driver in Windows only."),
                *restart_wsl("Restart WSL from Windows.")(Setting()),
            ),
            windows=(do("Install NVIDIA's driver for Windows and restart."),),
            slurm=(do("Run on a node that has a GPU.", "srun --gres=gpu:1 nvidia-smi"),),
            colab=(do("Choose a GPU under Runtime > Change runtime type."),),
        ),
        sources=("https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/index.html",),
        explains=("no_gpu_on_machine", "training_on_cpu"),
    ),
    Cause(
        id="driver_too_old",
        family="environment",
        title="The NVIDIA driver is too old for this build of torch",
        meaning="the NVIDIA driver supports an older CUDA than the torch build needs",
        why="A driver runs programs of its own CUDA major version and older ones; a newer build finds no device.",
        fix=driver_update,
        sources=(_CHAIN,),
        explains=(
            "no_gpu_on_machine",
            "driver_missing_or_not_loaded",
            "forward_compat_on_consumer_gpu",
            "training_on_cpu",
        ),
    ),
    Cause(
        id="driver_library_mismatch",
        family="environment",
        title="The loaded kernel module and the driver's libraries have different versions",
        meaning="loaded kernel module and userspace driver libraries have different versions (after an update)",
        why="An update replaced the libraries while the old module stayed loaded; NVML and CUDA refuse to start.",
        fix=then(
            lambda setting: reboot(setting, "to load the new module"),
            lambda setting: reload_modules(
                setting,
                "the modules",
                "sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia",
                "instead of rebooting",
            ),
        ),
        sources=("https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html",),
        explains=(
            "driver_missing_or_not_loaded",
            "no_gpu_on_machine",
            "container_without_gpu_access",
            "training_on_cpu",
        ),
    ),
    Cause(
        id="container_lost_gpu_cgroup",
        family="environment",
        title="The running container lost its access to the GPU",
        meaning="a running container lost its GPU device access (systemd reload rewrote the cgroup)",
        why="A daemon-reload rewrites the container's device rules without the GPU; the next CUDA call fails.",
        fix=always(
            do("See what runs in the container.", "docker top CONTAINER"),
            do(
                "Restart the container, which ends its programs and gives it the GPU until the next reload.",
                "docker restart CONTAINER",
                disruptive=True,
            ),
            do(
                "Let docker use cgroupfs, or name the devices, to prevent this for good.",
                "docker run --gpus all $(printf -- '--device=%s ' /dev/nvidia*[0-9l] /dev/nvidia-uvm) ...",
            ),
        ),
        sources=("https://github.com/NVIDIA/nvidia-container-toolkit/issues/48", _TOOLKIT),
        explains=(
            "container_without_gpu_access",
            "driver_missing_or_not_loaded",
            "no_gpu_on_machine",
            "gpu_fallen_off_bus",
        ),
    ),
    Cause(
        id="container_toolkit_missing",
        family="environment",
        title="Docker has no NVIDIA runtime",
        meaning="docker has no NVIDIA runtime / container toolkit",
        why="Docker hands out GPUs through the NVIDIA Container Toolkit only.",
        fix=always(
            do("Install the toolkit.", "sudo apt install nvidia-container-toolkit", root=True),
            do(
                "Tell docker about it.",
                "sudo nvidia-ctk runtime configure --runtime=docker",
                root=True,
            ),
            do("See which containers run, since the next step ends them.", "docker ps"),
            do(
                "Restart docker, so that it reads the change.",
                "sudo systemctl restart docker",
                root=True,
                disruptive=True,
            ),
        ),
        sources=("https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html",),
        explains=("container_without_gpu_access", "driver_missing_or_not_loaded", "no_gpu_on_machine"),
    ),
    Cause(
        id="container_without_gpu_access",
        family="environment",
        title="The container was started without the GPU",
        meaning="the container was started without GPU devices and driver libraries",
        why="Devices and libcuda come from the host when the container starts; the image has neither.",
        fix=by_place(
            (
                do("Start the container with the GPU.", "docker run --gpus all ..."),
                do("Set deploy.resources.reservations.devices with capabilities: [gpu] in a compose file."),
            ),
            kubernetes=(do("Ask for the GPU in the container's resources: limits: nvidia.com/gpu: 1"),),
            slurm=(do("Use --nv with Apptainer or Singularity.", "apptainer exec --nv image.sif nvidia-smi"),),
        ),
        sources=("https://docs.docker.com/engine/containers/resource_constraints/#gpu", _TOOLKIT),
        explains=(
            "driver_missing_or_not_loaded",
            "no_gpu_on_machine",
            "training_on_cpu",
            "bundled_cuda_library_missing",
        ),
    ),
    Cause(
        id="device_permission_denied",
        family="environment",
        title="This user may not open the GPU's device files",
        meaning="the user may not open /dev/nvidia*",
        why="The driver opens /dev/nvidiactl and /dev/nvidia0 for the program; without permission there is no device.",
        fix=always(
            do("See who may open them.", "ls -l /dev/nvidia* /dev/kfd /dev/dri"),
            do("Join the group that owns them, then log in again.", "sudo usermod -aG video,render $USER", root=True),
            do("Add the group to a container.", "docker run --gpus all --group-add video ..."),
        ),
        sources=("https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/index.html",),
        explains=("no_gpu_on_machine", "driver_missing_or_not_loaded", "container_without_gpu_access"),
    ),
    Cause(
        id="visible_devices_hides_gpu",
        family="environment",
        title="CUDA_VISIBLE_DEVICES hides the GPU",
        meaning="CUDA_VISIBLE_DEVICES is empty, invalid or names a GPU that is not there",
        why="CUDA shows a program only the devices that this variable names; one wrong entry hides all behind it.",
        fix=always(
            do(
                "See what it is set to, and find who sets it.",
                "env | grep -e CUDA_VISIBLE -e HIP_VISIBLE -e ROCR_VISIBLE",
            ),
            do("Unset the variable.", "unset CUDA_VISIBLE_DEVICES"),
            do("Use only numbers and identifiers that are valid here.", "nvidia-smi -L"),
        ),
        sources=("https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#cuda-environment-variables",),
        explains=(
            "no_gpu_on_machine",
            "invalid_device_ordinal",
            "training_on_cpu",
            "cpu_only_torch",
            "driver_missing_or_not_loaded",
        ),
    ),
    Cause(
        id="visible_devices_set_too_late",
        family="environment",
        title="CUDA_VISIBLE_DEVICES is set after CUDA was initialised",
        meaning="CUDA_VISIBLE_DEVICES is set after CUDA was initialised",
        why="CUDA reads the variable once, when it starts; an import that touches the GPU comes before your line.",
        fix=always(
            do("Set it outside the program, before python starts: export CUDA_VISIBLE_DEVICES=...", "nvidia-smi -L"),
            do("Set it in the program's first two lines instead, before every other import."),
        ),
        sources=("https://docs.pytorch.org/docs/stable/notes/cuda.html",),
        explains=("visible_devices_hides_gpu", "invalid_device_ordinal"),
    ),
    Cause(
        id="forward_compat_on_consumer_gpu",
        family="environment",
        title="A forward-compatibility libcuda is used on a GPU that does not allow it (CUDA error 804)",
        meaning="forward-compatibility libcuda used on a GPU that does not allow it (CUDA error 804)",
        why="Images with a newer CUDA bring a compat libcuda; it works on datacentre GPUs only.",
        fix=always(
            do("Update the host's driver to the CUDA version of the image."),
            do(
                "Keep the image's compat folder out of the library path instead.",
                "export LD_LIBRARY_PATH=$(echo $LD_LIBRARY_PATH | sed 's#[^:]*/compat:*##g')",
            ),
        ),
        sources=("https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html",),
        explains=("driver_too_old", "no_gpu_on_machine"),
    ),
    Cause(
        id="libcuda_mismatch_803",
        family="environment",
        title="The loaded libcuda does not match the kernel module (CUDA error 803)",
        meaning="a libcuda that does not fit the kernel module is loaded, mostly a compat directory (CUDA error 803)",
        why="The first libcuda.so.1 on the path wins; an older copy in a compat folder shadows the driver's own.",
        fix=always(
            do("See which libcuda is found.", "ldconfig -p | grep libcuda.so; echo $LD_LIBRARY_PATH"),
            do(
                "Take compat folders out of LD_LIBRARY_PATH and of /etc/ld.so.conf.d.",
                "sudo rm -f /etc/ld.so.conf.d/*compat*.conf && sudo ldconfig",
                root=True,
            ),
        ),
        sources=("https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html",),
        explains=("no_gpu_on_machine", "library_path_shadows_bundled", "driver_too_old"),
    ),
    Cause(
        id="nouveau_loaded",
        family="environment",
        title="The nouveau driver holds the GPU",
        meaning="nouveau holds the GPU instead of the nvidia module",
        why="Only one driver can own a device; while nouveau does, CUDA has none.",
        fix=then(
            do(
                "Keep nouveau from loading.",
                "printf 'blacklist nouveau\\noptions nouveau modeset=0\\n' | sudo tee "
                "/etc/modprobe.d/blacklist-nouveau.conf\nsudo update-initramfs -u",
                root=True,
            ),
            reboot,
        ),
        sources=("https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/index.html",),
        explains=("driver_missing_or_not_loaded", "no_gpu_on_machine"),
    ),
    Cause(
        id="secure_boot_blocks_module",
        family="environment",
        title="Secure Boot refuses the nvidia module",
        meaning="Secure Boot refuses the unsigned nvidia module",
        why="The kernel loads signed modules only; the driver is installed and stays unloaded.",
        fix=always(
            do(
                "Enrol the key that signs the module, then restart and confirm on the blue screen.",
                "sudo mokutil --import /var/lib/shim-signed/mok/MOK.der",
                root=True,
            ),
            do("Install the distribution's signed driver instead.", "sudo ubuntu-drivers install", root=True),
            do("Switch Secure Boot off in the firmware instead."),
        ),
        sources=("https://wiki.ubuntu.com/UEFI/SecureBoot/Signing",),
        explains=("driver_missing_or_not_loaded", "no_gpu_on_machine", "nouveau_loaded"),
    ),
    Cause(
        id="wsl_windows_or_kernel_too_old",
        family="environment",
        title="Windows or the WSL kernel is too old for the GPU",
        meaning="Windows build or WSL kernel without GPU support",
        why="WSL reaches the GPU through /dev/dxg, which needs WSL 2 and Windows 10 21H2 or Windows 11.",
        fix=then(
            restart_wsl("Update and restart WSL in a terminal of Windows.", "wsl --update && wsl --shutdown"),
            do("Update Windows, and convert an old distribution to WSL 2.", "wsl --set-version Ubuntu 2"),
        ),
        sources=(_WSL,),
        explains=("no_gpu_on_machine", "driver_missing_or_not_loaded"),
    ),
    Cause(
        id="wsl_wrong_driver_inside",
        family="environment",
        title="A Linux NVIDIA driver inside WSL hides the one that Windows provides",
        meaning="a Linux NVIDIA driver inside WSL hides the libcuda that Windows provides",
        why="In WSL libcuda comes from /usr/lib/wsl/lib; a driver package installed inside shadows it.",
        fix=then(
            do(
                "Remove the driver inside WSL.",
                "sudo apt purge 'nvidia-*' 'libnvidia-*' && sudo apt autoremove && sudo ldconfig",
                root=True,
            ),
            restart_wsl("Restart WSL from Windows."),
        ),
        sources=(_WSL,),
        explains=(
            "driver_missing_or_not_loaded",
            "no_gpu_on_machine",
            "libcuda_mismatch_803",
            "driver_library_mismatch",
        ),
    ),
)

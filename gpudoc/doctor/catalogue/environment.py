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
            (do("If this machine should have a GPU, look for it on the bus.", "lspci | grep -i -e nvidia -e amd"),),
            colab=(do("Runtime > Change runtime type > choose a GPU, then run all cells again."),),
            notebook=(do("Choose a runtime or server option with a GPU in the settings of the notebook service."),),
            slurm=(do("Ask the scheduler for one.", "srun --gres=gpu:1 --pty nvidia-smi"),),
            kubernetes=(do("Ask for one in the container's resources: limits: nvidia.com/gpu: 1"),),
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
                do("Is the module there, and does it load?", "sudo modprobe nvidia && nvidia-smi", root=True),
                do("If it is not: install the distribution's driver.", "sudo ubuntu-drivers install", root=True),
                do("After a kernel update the module must be built anew.", "sudo dkms autoinstall", root=True),
            ),
            docker=(do("Install the driver on the host; check it there, outside the container.", "nvidia-smi"),),
            wsl=(
                do("Install the driver in Windows only."),
                *restart_wsl("Then restart WSL from Windows.")(Setting()),
            ),
            windows=(do("Install NVIDIA's driver for Windows and restart."),),
            slurm=(do("Run on a node that has a GPU.", "srun --gres=gpu:1 nvidia-smi"),),
            colab=(do("Runtime > Change runtime type > choose a GPU."),),
        ),
        sources=("https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/index.html",),
        explains=("no_gpu_on_machine", "training_on_cpu"),
    ),
    Cause(
        id="driver_too_old",
        family="environment",
        title="The NVIDIA driver is older than the torch build needs",
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
            lambda setting: reboot(setting, "Restart, which loads the new module"),
            lambda setting: reload_modules(
                setting,
                "Without a restart: reload the modules",
                "sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia",
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
            do("What runs in it?", "docker top CONTAINER"),
            do(
                "Restart the container: it gets its devices back until the next reload, and its programs end.",
                "docker restart CONTAINER",
                disruptive=True,
            ),
            do(
                "For good: let docker use cgroupfs, or name the devices.",
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
            do("Which containers run? The next step ends them.", "docker ps"),
            do("Let docker read it.", "sudo systemctl restart docker", root=True, disruptive=True),
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
                do("Start it with the GPU.", "docker run --gpus all ..."),
                do("In a compose file: deploy.resources.reservations.devices with capabilities: [gpu]."),
            ),
            kubernetes=(do("Ask for it in the container's resources: limits: nvidia.com/gpu: 1"),),
            slurm=(do("With Apptainer or Singularity:", "apptainer exec --nv image.sif nvidia-smi"),),
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
            do("Who may?", "ls -l /dev/nvidia* /dev/kfd /dev/dri"),
            do("Join the group that owns them, then log in again.", "sudo usermod -aG video,render $USER", root=True),
            do("In a container, add the group.", "docker run --gpus all --group-add video ..."),
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
            do("Who sets it, and to what?", "env | grep -e CUDA_VISIBLE -e HIP_VISIBLE -e ROCR_VISIBLE"),
            do("Without it.", "unset CUDA_VISIBLE_DEVICES"),
            do("Numbers and identifiers that are valid here:", "nvidia-smi -L"),
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
            do("Or make it the first two lines of the program, before every other import."),
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
                "Or keep the image's compat folder out of the way.",
                "export LD_LIBRARY_PATH=$(echo $LD_LIBRARY_PATH | sed 's#[^:]*/compat:*##g')",
            ),
        ),
        sources=("https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html",),
        explains=("driver_too_old", "no_gpu_on_machine"),
    ),
    Cause(
        id="libcuda_mismatch_803",
        family="environment",
        title="The libcuda that is loaded does not belong to the kernel module (CUDA error 803)",
        meaning="a libcuda that does not fit the kernel module is loaded, mostly a compat directory (CUDA error 803)",
        why="The first libcuda.so.1 on the path wins; an older copy in a compat folder shadows the driver's own.",
        fix=always(
            do("Which one is found?", "ldconfig -p | grep libcuda.so; echo $LD_LIBRARY_PATH"),
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
        title="The nouveau driver holds the card",
        meaning="nouveau holds the card instead of the nvidia module",
        why="Only one driver can own a device; while nouveau does, CUDA has none.",
        fix=then(
            do(
                "Keep nouveau from loading.",
                "printf 'blacklist nouveau\\noptions nouveau modeset=0\\n' | sudo tee "
                "/etc/modprobe.d/blacklist-nouveau.conf\nsudo update-initramfs -u",
                root=True,
            ),
            lambda setting: reboot(setting, "Then reboot"),
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
            do("Or install the distribution's signed driver.", "sudo ubuntu-drivers install", root=True),
            do("Or switch Secure Boot off in the firmware."),
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
            restart_wsl("In Windows, in a terminal: update and restart WSL.", "wsl --update && wsl --shutdown"),
            do("Update Windows; convert an old distribution.", "wsl --set-version Ubuntu 2"),
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
            restart_wsl("Then restart WSL from Windows."),
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

"""Containers, WSL and permissions: who was given the GPU, as texts show it."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoc.doctor.causes.sign import UNAVAILABLE, Sign, finders, quote, text_finder, words
from gpudoc.doctor.model import Evidence, Finding, Skip
from gpudoc.facts.readers.model import Text

DOCKER = words(
    r"\bdocker\b",
    r"\bpodman\b",
    r"\bcontainer\b",
    r"docker-compose",
    r"\bkubectl\b",
    r"\bk8s\b",
    r"\bpods?\b",
    "Dockerfile",
    "containerd",
    r"\bnerdctl\b",
    r"\blxc\b",
    r"\bsingularity\b",
    r"\bapptainer\b",
)
WITHOUT_GPU_OPTION = words(
    r"docker (?:container )?run (?!.{0,200}(?:--gpus|--runtime|--device|nvidia-docker))[^\n]{3,200}",
)
_NO_DRIVER = words(
    r"Found no NVIDIA driver on your system",
    r"NVIDIA Driver was not detected",
    r"nvidia-smi\W{0,3} ?(?:is |was |command )?(?:not (?:found|there|available)|missing)",
    r"libcuda\.so(?:\.1)?: cannot open shared object",
    r"No CUDA GPUs are available",
    UNAVAILABLE,
    r"CUDA (?:is )?not available",
    r"NVML Shared Library Not Found",
    r"Failed to initialize NVML",
    r"nvidia-smi.{0,40}has failed",
    r"no CUDA-capable device",
    r"no (?:access to|visible|usable) (?:the |any )*gpus?\b",
    r"\bgpus? (?:is |are |was )?(?:not|n't|never|in)[ -]?(?:visible|detected|found|accessible|available|"
    r"recogni\w+|seen)",
    r"(?:can ?not|can't|unable to|does ?n.t|fail\w* to) (?:\w+ )?(?:see|access|find|detect|recogni\w+) "
    r"(?:the |my |any |an? |nvidia )*gpus?\b",
)
_WORKS = words(r"is_available\(\)\W{0,8}True", r"Is CUDA available: (?:True|Yes)")
# nvidia-container-cli says in its log that it looked for WSL and found none
_NOT_WSL = words("non-WSL environment")
_WSL = words(r"\bWSL\s?2?\b", "microsoft-standard", "/usr/lib/wsl", "/dev/dxg")

_SCHEDULER = words(r"\bslurm\w*", r"#SBATCH|\bsbatch\b|\bsrun\b", r"\bqsub\b|#PBS\b|\bbsub\b")
_GPU_ASKED_FOR = words(
    r"--gres[ =]|--gpus\S*[ =]|gpu:\d|ngpus|is_available\(\)\W{0,8}True", r"\bMIG\b", "version mismatch"
)
_NO_DRIVER_IN_JOB = words(
    r"couldn.t communicate with the NVIDIA driver", r"nvidia-smi\W{0,3}:? ?(?:command )?not found"
)


def _find_job_without_gpu(text: Text, evidence: Evidence) -> Iterator[Finding | Skip]:
    """A job that the scheduler put on a node without a GPU: it asked for none, and there is no driver to speak to."""
    del evidence
    job, dead = text.find(_SCHEDULER), text.find(_NO_DRIVER_IN_JOB)
    if job and dead and text.find(_GPU_ASKED_FOR) is None:
        yield Finding(
            id="no_gpu_on_machine",
            confidence=0.82,
            evidence=(quote(job, "scheduler"), quote(dead, "in the job")),
            explains=("driver_missing_or_not_loaded",),
        )


FINDERS = (
    text_finder("no_gpu_on_machine", _find_job_without_gpu),
    *finders(
        Sign(
            id="container_lost_gpu_cgroup",
            said=words(
                r"Failed to initialize NVML: Unknown Error",
                # told from memory: the words turned about, the end cut off
                r"NVML (?:initiali[sz]e|initiali[sz]ation|init) (?:failed|error)\W{1,3}Unkno\w*",
            ),
            unless=_WSL,
            sure=0.85,
        ),
        Sign(
            id="container_lost_gpu_cgroup",
            said=words(
                r"daemon-reload",
                r"(?:lost|loses|losing) (?:its |the |access to )?(?:the )?gpus?",
                "cgroup",
            ),
            also=words(r"(?:NVML|nvidia-smi|CUDA).{0,80}(?:Unknown Error|fail\w*|error|lost|not)"),
            unless=words("fallen off the bus", r"\boom\b", "out of memory", "GPU is lost"),
            sure=0.6,
        ),
        Sign(
            id="container_toolkit_missing",
            said=words(
                r"could not select device driver ['\"\\]{0,4} ?['\"\\]{0,4} ?with capabilities: \[\[gpu",
                r"could not select device driver .{0,20}nvidia",
                r"unknown or invalid runtime name: nvidia",
                r"Unknown runtime specified nvidia",
                r"nvidia-container-(?:runtime|cli|runtime-hook)\S{0,4}:? ?.{0,30}(?:executable file )?(?:not found|no "
                r"such file)",
                r"unknown flag: --gpus",
                r"unresolvable CDI devices? nvidia",
                r"failed to discover GPU vendor from CDI",
                r"CDI device injection failed",
                r"runtime .?nvidia.? (?:is )?not (?:found|configured|registered|available|installed)",
                r"unknown (?:or invalid )?(?:docker )?runtime(?: name)?:? ?\W{0,3}nvidia",
                r"nvidia[- ](?:docker\d?|container[- ](?:toolkit|runtime))[^.\n]{0,24} (?:is |was )?"
                r"(?:not|n't) (?:installed|configured|found|set up)",
                # the toolkit is there, and older than the cgroups or the loader of this system
                r"nvidia-container-cli: (?:container|mount|ldcache) error: .{0,80}(?:cgroup|bpf_prog|ldconfig)",
            ),
            sure=0.95,
        ),
        Sign(
            id="container_without_gpu_access",
            said=words(
                r"The NVIDIA Driver was not detected\.? .{0,20}GPU functionality will not be available",
                r"Use .{0,60}to start this container[ ,;]* ?with GPU support",
                r"NVIDIA_VISIBLE_DEVICES\s?=\s?(?:void|none)\b",
            ),
            sure=0.9,
        ),
        Sign(id="container_without_gpu_access", said=WITHOUT_GPU_OPTION, also=_NO_DRIVER, unless=_WORKS, sure=0.85),
        Sign(
            id="container_without_gpu_access",
            said=_NO_DRIVER,
            also=DOCKER,
            unless=words(
                r"is_available\(\)\W{0,8}True",
                r"Is CUDA available: (?:True|Yes)",
                "Driver/library version mismatch",
                "could not select device driver",
                "Unknown Error",
                r"CUDA_VISIBLE_DEVICES=(?!\d)\S",
                "nvidia-uvm",
                "MIG",
            ),
            sure=0.6,
        ),
        Sign(
            id="container_without_gpu_access",
            said=words(r"NVIDIA_DRIVER_CAPABILITIES\s?=\s?(?!\S*(?:compute|all))\w+"),
            also=_NO_DRIVER,
            sure=0.8,
        ),
        # apptainer and singularity give the GPU only when asked
        Sign(
            id="container_without_gpu_access",
            said=words(
                r"(?:singularity|apptainer) (?:exec|run|shell) (?![^\n]{0,200}--(?:nv|nvccli|rocm)\b)[^\n]{3,200}"
            ),
            also=_NO_DRIVER,
            unless=_WORKS,
            sure=0.85,
        ),
        # the driver's libraries were mounted only in part: nvidia-smi is there, libcuda is not
        Sign(
            id="container_without_gpu_access",
            said=words(r"CUDA Version: (?:N/A|ERR!)"),
            also=DOCKER,
            unless=_WORKS,
            sure=0.6,
        ),
        # the orchestrator's own words for a GPU that nobody passes on
        Sign(
            id="container_toolkit_missing",
            said=words(
                r"could not load NVML library",
                r"(?:fail\w*|unable|could not|can ?not) (?:to )?(?:start|initiali[sz]e|init|load) nvml",
                r"If this is a GPU node, did you (?:set the docker default runtime|configure the NVIDIA "
                r"Container Toolkit)",
                r"Incompatible (?:platform|strategy) detected",
                r"no runtime for \W{0,3}nvidia\W{0,3} is configured",
                r"RuntimeHandler \W{0,3}nvidia\W{0,3} not supported",
            ),
            also=words(r"device[- ]plugin", r"\bkube\w*|\bk[38]s\b|\bminikube\b|\bmicrok8s\b|containerd|\bkubelet\b"),
            unless=words(r"NVML: (?:Unknown Error|Driver/library|Insufficient)"),
            sure=0.82,
        ),
        Sign(
            id="no_gpu_on_machine",
            said=words(
                r"Insufficient (?:nvidia|amd)\.com/gpu",
                r"Could not find any nv files on this host",
                r"Invalid generic resource \(gres\) specification",
            ),
            unless=_WORKS,
            sure=0.7,
        ),
        Sign(
            id="container_toolkit_missing",
            # the plugin stands on the node and finds nothing there, since the runtime hands it no device
            said=words(r"Insufficient (?:nvidia|amd)\.com/gpu"),
            also=words(
                r"device[- ]plugin", r"gpu[- ]operator", "nvidia-docker", "nvidia-container", "default[- ]runtime"
            ),
            unless=_WORKS,
            sure=0.76,
        ),
        # the hook of the runtime looked on the host, before there was a container
        Sign(
            id="driver_missing_or_not_loaded",
            said=words(
                r"nvml error: driver not loaded",
                r"nvidia-container-cli: initialization error: .{0,30}libnvidia-ml\.so\S* cannot open",
            ),
            sure=0.86,
        ),
        Sign(
            id="visible_devices_hides_gpu",
            said=words(r"nvidia-container-cli: device error: \S+ unknown device"),
            sure=0.85,
        ),
        # compose files of a version that knows no GPUs
        Sign(
            id="container_without_gpu_access",
            said=words(
                r"Additional propert\w+ [^\n]{0,60}not allowed",
            ),
            also=words(r"capabilities\W{0,4}\[?\W{0,3}gpu", r"driver: nvidia", r"runtime: nvidia", r"\bgpus\b"),
            sure=0.75,
        ),
        # torch's extension builder found the toolkit and no usable GPU; whose fault that is it does not say
        *(
            Sign(id=cause, said=words(r"No CUDA runtime is found, using CUDA_HOME"), unless=_WORKS, sure=sure)
            for cause, sure in (
                ("container_without_gpu_access", 0.44),
                ("driver_missing_or_not_loaded", 0.42),
                ("no_gpu_on_machine", 0.4),
            )
        ),
        Sign(
            id="device_permission_denied",
            said=words(
                r"/dev/(?:nvidia\w*|kfd|dri/\w+)\W{0,6}.{0,40}(?:permission denied|not permitted|EACCES)",
                r"(?:permission denied|not permitted|EACCES|unable to open).{0,60}/dev/(?:nvidia|kfd|dri/)",
                r"Insufficient Permissions",
                r"NVML_ERROR_NO_PERMISSION",
                r"(?:not|n't) (?:(?:an? )?member of|in) (?:the )?.{0,12}(?:render|video|vglusers)\W? (?:or \S+ )?group",
                r"c(?:rw-){1,2}[r-][w-][x-]?-{2,3} \d+ root (?:video|vglusers|render) .{0,40}/dev/nvidia",
            ),
            sure=0.92,
        ),
        Sign(
            id="device_permission_denied",
            said=words(
                r"sudo [^\n]*(?:python|nvidia-smi)[^\n]*\n[^\n]*\bTrue\b.{0,300}\bFalse\b",
                r"\bFalse\b.{0,300}sudo [^\n]*python[^\n]*\n[^\n]*\bTrue\b",
                r"(?:works?|fine|True|see\w* the gpu) (?:only )?(?:as|with|under|when run as) (?:root|sudo)\b",
                r"\b(?:gpus?|cuda|torch)\b[^.\n]{0,60}\b(?:unless|only|except)\b[^.\n]{0,40}\b(?:root|sudo|"
                r"superuser)\b",
                r"\b(?:unless|only|except)\b[^.\n]{0,40}\b(?:root|sudo|superuser)\b[^.\n]{0,60}\b(?:gpus?|cuda)\b",
                r"\b(?:with|as|under|using) (?:sudo|root|superuser|administrator)\b[^.\n]{0,30}"
                r"(?:works?\b|is fine|is available|is True|finds? the gpu|sees? the gpu)",
                r"only (?:root|with sudo)\b.{0,60}(?:gpu|cuda|nvidia)",
            ),
            sure=0.86,
        ),
        Sign(
            id="device_permission_denied",
            said=words(
                r"(?:usermod -a ?G|--group-add|chmod (?:a\+rw|0?666)) .{0,40}(?:video|render|vglusers|/dev/nvidia)",
            ),
            sure=0.7,
        ),
        Sign(
            id="wsl_windows_or_kernel_too_old",
            said=words(r"GPU access blocked by the operating system"),
            sure=0.8,
        ),
        Sign(
            id="wsl_windows_or_kernel_too_old",
            said=words(
                r"4\.(?:4|19)\.\d+[\w.-]*microsoft",
                r"Microsoft.{0,20}Windows .{0,12}Version 10\.0\.(?:1[0-8]\d{3}|190\d\d|1904[0-3])",
                r"\bWSL ?1\b",
                r"wsl --update",
                r"wsl --set-version",
                r"(?:Windows )?build (?:1[89]\d{3}|190\d\d)\b",
                "21H1",
                r"/dev/dxg.{0,40}(?:no such|not found|missing|does not exist)",
            ),
            also=words(r"\bWSL", "microsoft-standard", "Microsoft@Microsoft"),
            unless=words(
                r"apt(?:-get)? install .{0,30}nvidia-(?:driver|utils|compute)",
                r"is_available\(\)\W{0,8}True",
                r"\b(?:am|is|are|was|'m|'s) not (?:on|in|under|inside|using) (?:the )?WSL|\bnot running (?:on|in|"
                r"under) WSL|\b(?:not|n't) (?:use|"
                r"using) WSL",
            ),
            sure=0.8,
        ),
        Sign(
            id="wsl_wrong_driver_inside",
            said=words(
                r"(?:apt(?:-get)?|dnf|pacman) (?:install|-S) .{0,60}(?:nvidia-(?:driver|utils|compute|dkms)|"
                r"cuda-drivers|\bcuda\b(?!-toolkit))",
                r"libnvidia-compute-\d+",
                r"nvidia-(?:driver|utils|dkms)-\d{3}",
                r"cuda-drivers",
                r"NVIDIA-Linux-x86_64-[\d.]+\.run",
                r"/usr/lib/x86_64-linux-gnu/libcuda\.so",
                r"(?:Linux|nvidia) driver (?:is |was )?(?:installed )?(?:inside|in) (?:the )?WSL",
            ),
            also=_WSL,
            unless=words("non-WSL environment", r"Is CUDA available: (?:True|Yes)"),
            sure=0.82,
        ),
        Sign(
            id="wsl_wrong_driver_inside",
            # nvidia-smi reaches the driver, and the libcuda that it finds is another's
            said=words(r"CUDA Version: (?:ERR!|N/A)"),
            also=_WSL,
            unless=_NOT_WSL,
            sure=0.75,
        ),
        Sign(
            id="wsl_windows_or_kernel_too_old",
            said=words(r"WSL environment detected but no adapters were found"),
            sure=0.9,
        ),
        Sign(
            id="wsl_wrong_driver_inside",
            said=words(r"nvidia-smi.{0,20}has failed because it couldn.t communicate", r"Driver Not Loaded"),
            also=_WSL,
            unless=_NOT_WSL,
            sure=0.82,
        ),
    ),
)

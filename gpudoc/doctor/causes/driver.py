"""Driver, kernel module, modes and services of the GPU, as texts show their faults."""

from __future__ import annotations

from gpudoc.doctor.causes.sign import Sign, finders, words

FINDERS = finders(
    Sign(
        id="driver_too_old",
        said=words(
            r"NVIDIA driver on your system is too old",
            r"CUDA driver version is insufficient for CUDA runtime version",
            r"cudaErrorInsufficientDriver",
            r"unsatisfied condition: (?:cuda|driver)\s?>=?",
            r"provided PTX was compiled with an unsupported toolchain",
            r"CUDA_ERROR_UNSUPPORTED_PTX_VERSION|cudaErrorUnsupportedPtxVersion",
            r"please update your driver to a newer version",
            r"driver (?:version )?(?:is )?too old",
            r"update your (?:gpu|nvidia|graphics) driver",
            r"This container was built for NVIDIA Driver Release [\d.]+ or later, but version",
            r"requires (?:at least )?(?:nvidia )?driver (?:version )?(?:>=? ?)?\d{3}.{0,60}(?:but|found|installed)",
        ),
        sure=0.93,
    ),
    Sign(
        id="driver_library_mismatch",
        said=words(
            r"Driver/library version mismatch",
            r"API mismatch: the client has the version",
            r"client .{0,40}version .{0,20}but .{0,20}kernel module has (?:the )?version",
            r"NVML_ERROR_LIB_RM_VERSION_MISMATCH",
            r"kernel module .{0,40}does not match .{0,40}(?:library|userspace|client)",
            r"nvml error 18\b|RM has detected an NVML/RM version mismatch",
        ),
        sure=0.97,
    ),
    Sign(
        id="fabric_manager_not_running",
        said=words(
            r"Error 802\b",
            r"system (?:is )?not yet initiali[sz]ed",
            r"CUDA_ERROR_SYSTEM_NOT_READY|cudaErrorSystemNotReady",
            r"fabric ?manager.{0,60}(?:fail|not running|inactive|dead|not started|error|mismatch)",
            r"(?:Fabric\s{1,40})?State\s*: In Progress",
        ),
        sure=0.95,
    ),
    Sign(
        # NCCL's own guess when a multicast over the switches cannot be bound
        id="fabric_manager_not_running",
        said=words(r"error in (?:the )?Fabric Manager or NVSwitches"),
        sure=0.7,
    ),
    Sign(
        id="libcuda_mismatch_803",
        said=words(
            r"Error 803\b",
            r"system has unsupported display driver ?/ ?cuda driver combination",
            r"display driver (?:and|/|with) (?:the )?cuda driver[^.\n]{0,30}(?:not supported|unsupported|combination)",
            r"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH|cudaErrorSystemDriverMismatch",
        ),
        sure=0.95,
    ),
    Sign(
        id="forward_compat_on_consumer_gpu",
        said=words(
            r"Error 804\b",
            r"forward compatibility was attempted on non[- ]supported HW",
            r"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE|cudaErrorCompatNotSupportedOnDevice",
        ),
        sure=0.95,
    ),
    Sign(
        id="mps_daemon_unreachable",
        said=words(
            r"Error 805\b",
            r"MPS client failed to connect",
            r"CUDA_ERROR_MPS_\w+|cudaErrorMps\w+",
            r"MPS (?:control )?(?:daemon|server).{0,50}(?:not running|fail|unreachable|cannot|not ready|version "
            r"mismatch)",
            r"(?:connect|connection) to (?:the )?MPS",
        ),
        sure=0.95,
    ),
    Sign(
        id="uvm_broken_after_suspend",
        said=words(
            r"CUDA unknown error",
            r"CUDA error: unknown error",
            r"\berror(?: code)? 999\b",
            "CUDA_ERROR_UNKNOWN",
            r"cudaErrorUnknown",
            r"error \(?30\)? ?: unknown error",
        ),
        also=words(
            r"\bsuspend\w*",
            r"\bhibernat\w*",
            r"\bsleep(?:ing)?(?: mode)?\b(?! for)",
            r"\bresum(?:e|ed|ing) from",
            r"\bwak(?:e|ing|es)[ -]?up",
            r"\blid\b",
            r"left (?:it )?(?:idle|overnight)",
            r"rmmod nvidia_uvm",
            r"modprobe (?:-r )?nvidia[_-]uvm",
        ),
        sure=0.94,
    ),
    Sign(
        id="uvm_broken_after_suspend",
        said=words(r"error \(?30\)? ?: unknown error", r"CUDA error: unknown error"),
        unless=words(r"/dev/nvidia-uvm", r"\bsuspend\w*", r"\bXid\b", "fallen off"),
        sure=0.45,
    ),
    Sign(
        id="uvm_broken_after_suspend",
        said=words(r"CUDA unknown error", r"\berror(?: code)? 999\b", "CUDA_ERROR_UNKNOWN"),
        unless=words(
            r"/dev/nvidia-uvm",
            "No such device",
            "Unable to determine the device handle",
            "fallen off",
        ),
        sure=0.6,
    ),
    Sign(
        id="nvidia_uvm_missing",
        said=words(
            r"/dev/nvidia-uvm\W{0,6}.{0,50}(?:no such|not (?:exist|found|present|created)|missing|ENOENT|cannot|"
            r"does ?n.t exist)",
            r"(?:no such|missing|ENOENT|not exist|cannot (?:access|open|stat)|create|lack\w*|"
            r"without).{0,40}/dev/nvidia-uvm",
            r"nvidia[_-]uvm.{0,30}(?:not loaded|not found|missing|was not|isn.t loaded|not built)",
            r"(?:missing|not load\w*|without|load(?:ing)?) (?:the )?nvidia[_-]uvm",
            r"modprobe.{0,30}nvidia[_-](?:current-)?uvm",
            r"nvidia-modprobe (?:-c ?\d+ )?-u",
            r"--device[ =]/dev/nvidia-uvm",
        ),
        unless=words(
            r"\bsuspend\w*",
            r"\bhibernat\w*",
            r"\bresume",
            "rmmod",
            # the module that all others hang on is missing too
            r"module not found: '?nvidia'|Module nvidia(?:-current)? not found",
        ),
        sure=0.88,
    ),
    Sign(id="nvidia_uvm_missing", said=words(r"CUDA unknown error", r"\berror(?: code)? 999\b"), sure=0.4),
    Sign(
        id="nouveau_loaded",
        said=words(
            r"Kernel driver in use: nouveau",
            r"Nouveau kernel driver is (?:currently )?in use",
            r"^\W{0,3}nouveau \d{4,}",
            # unless it is said to be out of the way already
            r"\bnouveau\b(?!.{0,40}\b(?:not|never|no longer|n't|disabled|blacklisted|unloaded|removed)\b)"
            r".{0,60}(?:loaded|in use|blacklist|conflict|bound|holds|disable)",
            r"(?:blacklist|disable|unload|remove) (?:the )?nouveau",
            r"nouveau [\da-f:.]+: (?:\w+: )?(?:unknown chipset|timeout|DRM|gr|fifo|bus|enabling)",
            r"using (?:the )?nouveau",
        ),
        sure=0.9,
    ),
    Sign(
        id="nouveau_loaded",
        said=words(
            r"(?:just|freshly|newly) installed.{0,80}(?:not|without|before) (?:a )?(?:re-?boot\w*|restart\w*)",
        ),
        also=words(r"\bdrivers?\b"),
        sure=0.6,
    ),
    Sign(
        id="secure_boot_blocks_module",
        said=words(
            r"modprobe: ERROR: could not insert 'nvidia\w*': (?:Required key not available|Key was rejected)",
            r"(?:Required key not available|Key was rejected by service)",
            r"Lockdown: .{0,40}unsigned module loading is restricted",
            r"Loading of (?:unsigned )?module.{0,40}is rejected",
            r"secure ?boot.{0,80}(?:nvidia|module|driver|disable|sign|mok)",
            r"PKCS#7 signature not signed with a trusted key",
            r"mokutil --(?:import|sb-state)",
        ),
        # nvidia-smi that lists a card speaks to a module that was let in
        unless=words(
            r"Secure ?Boot(?: is| was)?(?: also| already)? (?:disabled|off)\b",
            r"is_available\(\)\W{0,8}True",
            r"^\W{0,3}GPU \d: (?:NVIDIA|Tesla|GeForce|Quadro)",
            r"NVIDIA-SMI \d{3}",
        ),
        sure=0.92,
    ),
    Sign(
        id="vgpu_unlicensed",
        said=words(
            r"License Status\W{1,40}Unlicensed",
            r"\bUnlicensed \((?:Un)?restricted\)",
            r"(?:GRID|vGPU|gridd).{0,80}(?:licen[sc]e|licens\w+).{0,40}(?:fail|error|expired|not acquired|unable|"
            r"denied)",
            r"(?:Failed|unable) to acquire (?:a )?licen[sc]e",
            r"valid (?:GRID|vGPU|virtual gpu) licen[sc]e",
            r"Virtual GPU Software is not licensed|unlicensed vgpu|vGPU .{0,20}unlicensed",
        ),
        sure=0.93,
    ),
    Sign(
        id="mig_enabled_no_instance",
        said=words(
            r"No MIG devices found",
            r"MIG (?:devices?|instances?) (?:were |are |is )?(?:not|never) (?:found|created|listed|detected|available|"
            r"visible|showing|shown)",
            r"\bno (?:\w+ ){0,2}MIG (?:devices?|slices?|partitions?)\b",
            r"MIG Mode Current : Enabled.{0,900}MIG Devices : None",
            r"mig-enabled: true\W{1,40}mig-devices: ?\{\}",
            r"No (?:GPU|compute|MIG) instances? (?:found|created)",
            r"MIG (?:mode )?(?:is )?enabled.{0,80}(?:no|without) .{0,20}(?:instance|device|partition)",
            r"(?:no|without) .{0,20}(?:MIG|gpu|compute) instances?",
            r"MIG mode .{0,60}nvidia-smi mig -cgi",
            r"nvidia-smi mig -[cli]",
        ),
        sure=0.88,
    ),
    Sign(
        id="compute_mode_exclusive",
        said=words(
            r"CUDA-capable devices?(?:\(s\))? (?:is|are|is/are) busy or unavailable",
            r"CUDA_ERROR_DEVICES_UNAVAILABLE|cudaErrorDevicesUnavailable",
            r"exclusive[-_ ](?:process|thread).{0,80}(?:busy|another|taken|fail|error|unavailable|in use)",
        ),
        sure=0.85,
    ),
    Sign(
        id="compute_mode_exclusive",
        said=words(r"\bE\. ?(?:Process|Thread)\b", r"Exclusive_(?:Process|Thread)", r"\bProhibited\b"),
        also=words(r"\bbusy\b", "unavailable", r"out of memory", r"RuntimeError: CUDA", r"\berror\b"),
        sure=0.8,
    ),
    Sign(
        id="driver_missing_or_not_loaded",
        said=words(
            r"couldn.t communicate with the NVIDIA driver",
            r"Failed to initialize NVML: (?:Driver Not Loaded|N/A|could not load)",
            r"NVML: Driver Not Loaded|NVML_ERROR_DRIVER_NOT_LOADED",
            r"modprobe: (?:FATAL|ERROR):? .{0,20}Module nvidia\S* not found",
            r"Bad return status for module build on kernel",
            r"Error! .{0,60}nvidia.{0,80}dkms|dkms.{0,60}nvidia.{0,60}(?:fail|error|bad exit)",
            r"Unable to load the '?nvidia'? kernel module",
            r"No NVIDIA (?:GPU )?(?:devices )?(?:driver )?(?:probed|module loaded)",
            r"could not insert 'nvidia\w*': (?:No such device|Unknown symbol|Exec format|Invalid)",
            r"modprobe nvidia\b.{0,40}(?:ENODEV|No such device|not found|fail\w*|error)",
            r"NVIDIA-SMI couldn.t find libnvidia-ml",
            r"(?:driver|module) (?:is )?not (?:loaded|installed)",
            r"NVIDIA driver (?:is )?(?:not )?(?:missing|uninstalled)",
            # the module was built for the kernel before
            r"nvidia (?:gpu )?drivers? (?:\w+ ){0,2}(?:stop(?:s|ped)? working|no longer (?:works?|loads?)|broke\w*|"
            r"breaks|(?:was )?(?:lost|gone)|disappear\w*) after (?:\S+ ){0,4}(?:kernel|os|system) up(?:dat|grad)\w+",
        ),
        unless=words(
            r"Is CUDA available: (?:True|Yes)",
            r"nvidia-container|libnvidia-container",
            "nouveau_loaded",
        ),
        sure=0.8,
    ),
    Sign(
        id="driver_missing_or_not_loaded",
        said=words(
            r"Found no NVIDIA driver on your system",
            r"NVML Shared Library Not Found",
            r"libcuda\.so(?:\.1)?: cannot open",
            r"libnvidia-ml\.so(?:\.1)?: cannot open",
            r"nvidia-smi'?:? (?:command )?not found",
            r"Failed to load (?:the )?libcuda",
            r"CUDA driver initialization failed",
            r"nvidia-smi.{0,20}is not recognized",
        ),
        unless=words(r"Is CUDA available: (?:True|Yes)", r"is_available\(\)\W{0,8}True"),
        sure=0.5,
    ),
)

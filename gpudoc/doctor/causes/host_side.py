"""What the host does to training: CPUs, storage, shared and host memory, and settings that cost time."""

from __future__ import annotations

from gpudoc.doctor.causes.loading import SLOW
from gpudoc.doctor.causes.sign import Sign, finders, words

FINDERS = finders(
    Sign(
        id="cpu_oversubscription",
        in_training=True,
        said=words(
            r"(?:OMP|MKL|OPENBLAS|NUMEXPR)_NUM_THREADS\s?=\s?\d",
            r"set_num_threads\(\s?\d",
            r"over-?subscri\w*",
            r"too many (?:cpu )?threads",
            r"(?:all|every|\d+) (?:cpu )?cores? .{0,30}(?:100 ?%|busy|saturat\w*|full|max\w*)",
            r"load average\W{1,4}\d{2,}",
            r"cpu (?:usage|utili[sz]ation)\W{0,12}\d{3,5} ?%",
            r"\d+ threads .{0,30}(?:per|each|for every|in every)",
            r"thread contention",
            r"\d+ (?:openmp|omp|mkl|cpu|torch|blas) threads",
            r"setNumThreads\(",
            r"each (?:spawns?|starts?|uses?|creates?) \d+ .{0,12}threads",
            r"threads?\b.{0,60}(?:number of cpus|cpu count|all cpus|all cores|per process|for each process)",
            r"(?:many|hundreds of|thousands of) (?:cpu )?threads",
        ),
        also=SLOW,
        unless=words(r"does not have many workers", "worker processes in total"),
        sure=0.7,
        severity="warning",
    ),
    # nothing but the cores is complained of, and no loader that would keep them busy is named
    Sign(
        id="cpu_oversubscription",
        in_training=True,
        said=words(
            r"\b(?:9\d|100) ?% (?:on|of|for|across) all (?:\w+ ){0,3}(?:cores|cpus)\b",
            r"all (?:\w+ ){0,3}(?:cores|cpus)(?: \w+){0,3} (?:9\d|100) ?%",
        ),
        unless=words(
            r"num_workers",
            r"data ?-?_?loaders?\b",
            r"augment\w*",
            r"decod\w*",
            r"worker processes",
            r"gpu[^.\n]{0,30}not used",
        ),
        sure=0.6,
        severity="warning",
    ),
    Sign(
        id="cgroup_cpu_limit",
        in_training=True,
        said=words(
            r"cpu\.max\b",
            r"cfs_quota",
            r"--cpus[ =]\d|--cpu-(?:quota|period|shares)\b|--cpuset-cpus\b",
            r"nr_throttled|throttled_(?:usec|time)",
            r"(?:cpu|core) (?:quota|limit)\w*",
            r"(?:limits?|requests?|resources)\W[^\n]{0,30}\bcpu\W{1,4}\d",
            r"(?:container|pod|docker|job|allocat\w+) [^\n]{0,60}(?:only )?(?:\d{1,2}|one|two|four) (?:v?cpus?|"
            r"cores?)\b",
            r"cpus-per-task\W{0,2}\d",
            r"(?:cores?|cpus?) of the (?:host|node)[^.\n]{0,30}(?:not|instead of) (?:of )?(?:the |its )?"
            r"(?:container|pod)",
            r"(?:os\.cpu_count|cpu_count|nproc).{0,60}(?:\d+).{0,60}(?:container|cgroup|limit|affinity|"
            r"sched_getaffinity)",
        ),
        also=words(
            r"\bslow\w*",
            r"throttl\w*",
            r"cpu_count",
            r"nproc",
            r"sees? \d+",
            r"number of (?:threads|cores|cpus)",
            r"all \d+",
            r"host has|machine has|node has",
        ),
        sure=0.74,
        severity="warning",
    ),
    Sign(
        id="slow_storage",
        in_training=True,
        said=words(
            r"google drive|gdrive|/content/drive",
            r"\bNFS\b",
            r"\bHDD\b",
            r"spinning (?:disk|rust)|mechanical (?:disk|drive)|hard (?:disk|drive)s?\b",
            r"\bS3\b|s3fs|gcsfuse|goofys|blobfuse",
            r"network (?:drive|disk|storage|share|file ?system|mount)",
            r"\b(?:lustre|gpfs|ceph\w*|glusterfs|EFS|SMB|CIFS|samba)\b",
            r"/mnt/[a-z]\b",
            r"i/?o[- ]?wait",
            r"iotop|iostat",
            r"disk (?:i/?o|read|throughput|speed|bandwidth|usage)\b",
            r"reading .{0,30}from (?:the )?(?:disk|drive|storage|share)",
            r"external (?:usb )?(?:drive|disk)",
            r"(?:data\w*|images|videos|files)[^.\n]{0,24} (?:on|in|from) (?:the |a )?cloud\b|cloud (?:storage|bucket)",
            r"usb drive",
        ),
        also=SLOW,
        unless=words(
            "bus error",
            "No space left",
            r"\b(?:not|isn't|rule\w* out) (?:the |my |a )?(?:hard (?:disk|drive)|disk|storage)\b",
        ),
        sure=0.8,
        severity="warning",
    ),
    Sign(
        id="shm_too_small",
        said=words(
            r"insufficient shared memory",
            r"out of shared memory",
            r"unable to (?:write|mmap|resize|allocate) .{0,40}(?:shared memory|torch_\d+|/torch_)",
            r"killed by signal: Bus error",
            r"(?:shared memory|/dev/shm).{0,60}(?:No space left|full|too small|insufficient|64 ?MB?|limit)",
            r"--shm-size",
            r"\bSIGBUS\b",
            # the kernel's "PCIe Bus Error" is about the slot
            r"(?<!PCIe\x20)\bBus error\b",
            r"No space left on device.{0,200}(?:/dev/shm|shared|worker|multiprocessing)",
        ),
        unless=words(r"\bNCCL (?:WARN|INFO)\b", "nccl-", "Too many open files"),
        sure=0.92,
    ),
    Sign(
        id="too_many_open_files",
        said=words(
            r"Too many open files",
            r"received 0 items of ancdata",
            r"\[?Errno 24\]?",
            r"sharing_strategy.{0,40}file_system",
        ),
        sure=0.94,
    ),
    # opening takes a descriptor and no room: room is missing later, when the pages are written
    Sign(
        id="too_many_open_files",
        said=words(r"unable to open .{0,20}(?:shared memory|/torch_)"),
        unless=words("No space left", r"Bus error|SIGBUS", "Permission denied"),
        sure=0.62,
    ),
    Sign(id="shm_too_small", said=words(r"unable to open .{0,20}(?:shared memory|/torch_)"), sure=0.5),
    # a container has 64 MB of shared memory unless it is given more
    Sign(
        id="shm_too_small",
        said=words(r"DataLoader worker \(pid\S* .{0,40}exited unexpectedly"),
        also=words(r"\bdocker\b", r"\bcontainers?\b", r"\bk8s\b|kubernetes", "sagemaker", r"\bpods?\b", "podman"),
        unless=words(r"\bkilled\b|oom", "Segmentation fault", "--ipc"),
        sure=0.66,
    ),
    Sign(
        id="host_oom_killed",
        said=words(r"DataLoader worker \(pid\S* .{0,40}exited unexpectedly"),
        unless=words("shared memory", "Bus error", "Segmentation fault"),
        sure=0.55,
    ),
    Sign(
        id="host_oom_killed",
        said=words(
            r"killed by signal: Killed",
            r"(?:Memory cgroup )?out of memory: Kill(?:ed)? process",
            r"oom[-_ ]?kill\w*",
            r"OOMKilled",
            r"low on resource: memory|\bMemoryPressure\b|\bevicted\b[^\n]{0,200}\bmemory\b",
            r"exit ?code ?\W{0,4}(?:-9|137)\b",
            r"exitcode\s*: -9\b",
            r"Signal 9 \(SIGKILL\)",
            r"oom_kill event",
            r"DefaultCPUAllocator: (?:can't allocate|not enough) memory",
            r"Unable to allocate [\d.]+ [KMGT]iB for an array",
            r"^\W{0,4}MemoryError\b",
            r"std::bad_alloc",
            r"(?:Errno 12|\(12\)).{0,4}Cannot allocate memory",
            r"paging file is too small",
            r"^\W{0,6}(?:\S+: line \d+: +)?\d* ?Killed\b",
            r"slurmstepd: error: .{0,60}memory",
            r"exceeded (?:job |step )?memory limit",
            r"ran out of (?:host |system |cpu )?(?:ram|memory)\b.{0,60}kill",
            r"^\W{0,3}\d+\W{1,3}\d{2,8} (?:killed|Killed)",
            r"\bline \d+: +\d+ Killed\b",
            r"(?:got|gets?|was|is|being|said|says|prints?|message|only|just|with) [\"'`*]{1,2}Killed\b",
            r"session crashed after using all available RAM",
            r"(?:cpu|host|system|main) (?:memory|ram)[^.\n]{0,16}(?:used up|exhausted|runs? out|ran out)",
            r"invoked oom-killer",
        ),
        unless=words(r"CUDA out of memory", r"torch_\d+|</torch_", "Too many open files"),
        sure=0.9,
    ),
    Sign(
        id="checkpoint_too_often",
        in_training=True,
        said=words(
            r"checkpoint\w*[^.\n]{0,40}(?:slow(?:s|ing)?\b|too (?:often|frequent\w*)|bottleneck|"
            r"takes? (?:longer|most))",
            r"\bsav(?:e|es|ing|er)\b[^.\n]{0,40}(?:checkpoints?|ckpts?|model|weights)[^.\n]{0,60}"
            r"(?:slow\w*|bottleneck|(?:takes?|took|spends?|needs?|costs?) (?:\w+ ){0,3}?(?:\d{2,} ?s|\d+ ?(?:min|hour)|"
            r"(?:an?|one) (?:minute|hour)|minutes|hours|(?:so |too |very )?long|most|ages|forever))",
            r"(?:takes?|took) [^.\n]{0,24}(?:minutes?|hours?|seconds)[^.\n]{0,16} to save\b",
            r"(?:wait\w*|paus\w*|stop\w*|stall\w*|suspen\w*|hang\w*|slow\w*)[^.\n]{0,40}every \d+ ?k? "
            r"(?:steps|iter\w*|batches)",
        ),
        also=words(r"checkpoint\w*", r"\bckpts?\b", r"\bsav(?:e|es|ed|ing)\b"),
        unless=words(
            r"timeout|timed out", r"Traceback", r"No space left", r"(?:gradient|activation)[-_ ]checkpoint\w*"
        ),
        sure=0.6,
        severity="warning",
    ),
    Sign(
        id="tf32_off",
        in_training=True,
        said=words(
            r"TensorFloat32 tensor cores for float32 matrix multiplication available but not enabled",
            r"To properly utilize them, you should set .?torch\.set_float32_matmul_precision",
            r"\ballow_tf32\b",
            r"(?:float32|fp32) (?:matmul|matrix|training|performance).{0,60}slow\w*",
            r"set_float32_matmul_precision",
            r"\btf32\b",
        ),
        sure=0.72,
        severity="warning",
    ),
    Sign(
        id="gpu_sync_each_step",
        in_training=True,
        said=words(
            r"cudaStreamSynchronize|cudaDeviceSynchronize|cudaEventSynchronize",
            r"\bitem\(\).{0,80}(?:every|each|per|at each|in the loop|sync\w*|wait\w*|slow\w*)",
            r"(?:every|each) .{0,30}(?:step|iteration|batch).{0,60}\.item\(\)",
            r"(?:\.cpu\(\)|synchronize\([^)\n]{0,30}\)|nonzero|\.tolist\(\)).{0,80}(?:every|each|"
            r"sync\w*|slow\w*|block\w*)",
            r"aten::(?:item|_local_scalar_dense)",
            r"(?:device|gpu|cuda|host)[- ]sync\w*",
            r"cudaMemcpyAsync.{0,30}(?:DtoH|Device ?->? ?Host)",
        ),
        sure=0.72,
        severity="warning",
    ),
    Sign(
        id="cudnn_benchmark_variable_shapes",
        in_training=True,
        said=words(r"cudnn\.benchmark\s*=\s*True", r"cudnn[._ ]benchmark", r"benchmark\s?=\s?True"),
        also=words(
            r"multi-?scale",
            r"(?:variable|varying|different|vary|changing|dynamic|multi-?scale|random\w*|various) "
            r".{0,20}(?:size|shape|length|resolution|input|scale)\w*",
            r"(?:size|shape|length|resolution)s? .{0,20}(?:var(?:y|ies)|chang\w*|differ\w*)",
        ),
        sure=0.9,
        severity="warning",
    ),
    Sign(
        id="vram_spill_to_system_memory",
        said=words(
            r"sysmem fallback",
            r"shared gpu memory|shared video memory|shared memory of the gpu",
            r"(?:spill\w*|overflow\w*|swap\w*|offload\w*|moved?|fall\w* back) .{0,30}(?:system|host|shared|main|"
            r"cpu) (?:ram|memory)",
            r"(?:system|shared|host) (?:ram|memory) fallback",
            r"driver (?:53[1-9]|54\d)\b.{0,160}(?:slow\w*|shared|vram|oom|out of memory)",
            r"CUDA ?- ?Sysmem",
        ),
        sure=0.85,
        severity="warning",
    ),
)

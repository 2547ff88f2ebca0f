"""Causes of slow training: feeding the device, the host's part, settings, and how a watched job spends its time."""

from __future__ import annotations

from gpudoc.doctor.disruption import then
from gpudoc.doctor.model import Cause
from gpudoc.doctor.remedies import always, another_card, do, smi

_DATA = "https://docs.pytorch.org/docs/stable/data.html"
_GUIDE = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
_WATCH = do("Watch the running job.", "gpudoc doctor --pid PID")
_TUNE = do(
    "Let gpudoc measure and choose loader workers and prefetching.", "gpudoc tune --model cfg.yaml --only loader"
)

CAUSES: tuple[Cause, ...] = (
    Cause(
        id="dataloader_bottleneck",
        severity="warning",
        family="runtime",
        title="The loader holds training back",
        meaning="the loader holds training back and no narrower cause can be decided",
        why="The device waits for data in a large share of every step.",
        fix=always(
            _TUNE,
            do(
                "Use more loader workers, pin_memory=True, persistent_workers=True; decode and resize once, beforehand."
            ),
            _WATCH,
        ),
        sources=(_DATA, _GUIDE),
    ),
    Cause(
        id="too_few_workers",
        severity="warning",
        family="runtime",
        title="Too few loader workers",
        meaning="loader in the main process or with one or two workers",
        why="Samples are made one after another while the device waits.",
        fix=always(
            do("Set DataLoader(num_workers=about the CPUs per GPU, pin_memory=True, persistent_workers=True)."), _TUNE
        ),
        sources=(_DATA,),
        explains=("dataloader_bottleneck", "tf32_off"),
    ),
    Cause(
        id="too_many_workers",
        severity="warning",
        family="runtime",
        title="More loader workers than CPUs",
        meaning="more loader workers than CPUs",
        why="Workers beyond the CPUs that may be used take time and memory from each other.",
        fix=always(
            do("See how many CPUs may be used.", "python -c 'import os; print(len(os.sched_getaffinity(0)))'"), _TUNE
        ),
        sources=(_DATA,),
        explains=("dataloader_bottleneck",),
    ),
    Cause(
        id="workers_recreated_each_epoch",
        severity="warning",
        family="runtime",
        title="Loader workers are started again in each epoch",
        meaning="workers restarted at each epoch",
        why="Each start imports the program and fills the queue again while the device waits.",
        fix=always(do("Set DataLoader(..., persistent_workers=True), and build the loader once, not per epoch.")),
        sources=(_DATA,),
        explains=("dataloader_bottleneck",),
    ),
    Cause(
        id="slow_worker",
        severity="warning",
        family="live",
        title="One loader worker is much slower, and all wait for it",
        meaning="one loader worker is much slower than the others and the order makes all wait for it",
        why="Batches are handed out in order: the slowest sample decides.",
        fix=always(
            do("Set DataLoader(..., in_order=False) where the order does not matter, and even out the samples' cost.")
        ),
        sources=(_DATA,),
        explains=("dataloader_bottleneck",),
    ),
    Cause(
        id="decode_bound",
        severity="warning",
        family="live",
        title="Decoding and augmentation use up the CPUs",
        meaning="decoding and augmentation saturate the CPUs that the loader may use; more workers cannot help",
        why="The CPUs are busy all the time: only less work per sample, or more CPUs, helps.",
        fix=always(
            do(
                "Resize once and store the small files, or use a faster decoder (Pillow-SIMD, torchvision.io, DALI on "
                "the GPU)."
            ),
            do("Augment on the GPU, on whole batches."),
        ),
        sources=("https://docs.nvidia.com/deeplearning/dali/user-guide/docs/index.html",),
        explains=("dataloader_bottleneck",),
    ),
    Cause(
        id="collate_in_main_process",
        severity="warning",
        family="live",
        title="The main process spends its time on collating or pinning",
        meaning="collating, pinning or post-processing in the main process takes the time, not the workers",
        why="Workers wait for the main process, which does work that they could do.",
        fix=always(
            do("Do it in the workers: collate_fn of the DataLoader, pin_memory=True; return few large tensors.")
        ),
        sources=(_DATA,),
        explains=("dataloader_bottleneck",),
    ),
    Cause(
        id="slow_storage",
        severity="warning",
        family="runtime",
        title="The data come from slow storage",
        meaning="data on HDD, NFS or a mounted drive",
        why="Many small reads over a network or on a disk take longer than the device computes.",
        fix=always(
            do("Copy the data to local disk or memory first.", "rsync -a DATA /tmp/data"),
            do("Pack small files into large ones (tar shards, LMDB, Arrow) and read them in order."),
            do("Measure how fast the folder is.", "gpudoc bench --only data --data DIR"),
        ),
        sources=(_GUIDE,),
        explains=("dataloader_bottleneck",),
    ),
    Cause(
        id="cpu_oversubscription",
        severity="warning",
        family="runtime",
        title="Too many CPU threads",
        meaning="the threads of all processes together are more than the CPUs that may be used",
        why="Threads of all processes together are more than the CPUs; they wait for each other.",
        fix=always(
            do("Use one thread per loader worker, and few per rank.", "export OMP_NUM_THREADS=1"),
            do("Call torch.set_num_threads(1) and cv2.setNumThreads(0) in worker_init_fn."),
        ),
        sources=("https://docs.pytorch.org/docs/stable/notes/multiprocessing.html",),
        explains=("dataloader_bottleneck",),
    ),
    Cause(
        id="cgroup_cpu_limit",
        severity="warning",
        family="runtime",
        title="The container may use fewer CPUs than it sees",
        meaning="container CPU quota below the CPUs seen",
        why="Programs start threads for all CPUs of the machine, and the quota stops them for most of each period.",
        fix=always(
            do(
                "See the quota, and how often it throttles.",
                "cat /sys/fs/cgroup/cpu.max; grep throttled /sys/fs/cgroup/cpu.stat",
            ),
            do(
                "Raise the limit, or start only as many threads and loader workers as it allows.",
                "export OMP_NUM_THREADS=4",
            ),
        ),
        sources=("https://docs.kernel.org/admin-guide/cgroup-v2.html#cpu",),
        explains=("cpu_oversubscription", "dataloader_bottleneck", "too_many_workers"),
    ),
    Cause(
        id="tf32_off",
        severity="warning",
        family="runtime",
        title="float32 training runs without TF32",
        meaning="fp32 training without TF32",
        why="Since 1.12 matrix products in float32 do not use the tensor cores unless told to.",
        fix=always(do("Call torch.set_float32_matmul_precision('high') at the start, or use mixed precision.")),
        sources=(
            "https://docs.pytorch.org/docs/stable/notes/cuda.html#tensorfloat-32-tf32-on-ampere-and-later-devices",
        ),
    ),
    Cause(
        id="gpu_sync_each_step",
        severity="warning",
        family="runtime",
        title="The host waits for the device in every step",
        meaning=(
            "the host waits for the device in every step (.item(), .cpu(), synchronize) while the device idles "
            "afterwards"
        ),
        why="While Python waits it does not queue the next kernels, and the device idles afterwards.",
        fix=always(
            do("Log every 50 steps, keep the loss on the device, and call .item() only then."),
            do("Find the places: torch.cuda.set_sync_debug_mode('warn')."),
        ),
        sources=(_GUIDE,),
    ),
    Cause(
        id="cudnn_benchmark_variable_shapes",
        severity="warning",
        family="runtime",
        title="cudnn.benchmark searches again for each new shape",
        meaning="cudnn.benchmark with varying shapes",
        why="Each new input size starts a search for the fastest algorithm.",
        fix=always(do("Set torch.backends.cudnn.benchmark = False, or pad to a few sizes.")),
        sources=("https://docs.pytorch.org/docs/stable/backends.html#torch-backends-cudnn",),
    ),
    Cause(
        id="compile_recompiles",
        severity="warning",
        family="runtime",
        title="torch.compile compiles again and again",
        meaning="torch.compile recompiles again and again",
        why="Each new shape or value compiles anew; after the limit the frame runs uncompiled.",
        fix=always(
            do("See what changes.", "TORCH_LOGS=recompiles python train.py"),
            do("Use torch.compile(dynamic=True) or torch._dynamo.mark_dynamic, or pad to a few sizes."),
        ),
        sources=("https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html",),
    ),
    Cause(
        id="checkpoint_too_often",
        severity="warning",
        family="live",
        title="Writing checkpoints takes a large share of the time",
        meaning="writing checkpoints takes a large share of the time",
        why="Training stands still while the state is written.",
        fix=always(do("Save less often, to local disk, or asynchronously (torch.distributed.checkpoint.async_save).")),
        sources=("https://docs.pytorch.org/docs/stable/distributed.checkpoint.html",),
    ),
    Cause(
        id="logging_each_step",
        severity="warning",
        family="live",
        title="Logging takes a large share of the time",
        meaning="printing, progress bars, metrics or trackers in every step take a large share of the time",
        why="Each call waits for the device, the disk or the network.",
        fix=always(do("Log every 50 steps, and turn tensors into numbers only then.")),
        sources=(_GUIDE,),
    ),
    Cause(
        id="python_bound",
        severity="warning",
        family="live",
        title="Your own Python code in the loop takes the time",
        meaning="the user's own Python code in the loop takes the time (file and line named)",
        why="The device waits while the interpreter works.",
        fix=always(do("Move it out of the loop, into the loader's workers, or into tensor operations.")),
        sources=(_GUIDE,),
    ),
    Cause(
        id="launch_bound",
        severity="warning",
        family="live",
        title="The GPU waits for the CPU to launch many small kernels",
        meaning=(
            "the GPU waits for the CPU to launch many small kernels (small batch, small model, no compile or graphs)"
        ),
        why="Each kernel is shorter than the time that its launch takes.",
        fix=always(do("Use a larger batch, torch.compile(mode='reduce-overhead') or fused optimizers (fused=True).")),
        sources=("https://docs.pytorch.org/docs/stable/generated/torch.compile.html",),
    ),
    Cause(
        id="compute_bound",
        severity="info",
        family="live",
        title="The device computes nearly all the time",
        meaning="the device computes nearly all the time; healthy, with what would still help (severity info)",
        why="Nothing else holds it back: what remains is cheaper arithmetic or a faster device.",
        fix=always(
            do("Try bfloat16, torch.compile, channels_last for convolutions, or a larger batch."),
            do("See how near to the ceiling it runs.", "gpudoc bench"),
        ),
        sources=(_GUIDE,),
    ),
    Cause(
        id="communication_bound",
        severity="warning",
        family="live",
        title="Collectives take a large share of the time",
        meaning="collectives take a large share of the time",
        why="Ranks wait for gradients to be exchanged more than they compute.",
        fix=always(
            do("Use accumulation (no_sync), larger buckets or bf16 compression, and check links and interfaces."),
            do("See the paths between GPUs.", "nvidia-smi topo -m"),
        ),
        sources=("https://docs.pytorch.org/docs/stable/notes/ddp.html",),
    ),
    Cause(
        id="pageable_copies",
        severity="warning",
        family="live",
        title="Copies to the device come from pageable memory",
        meaning="host to device copies come from pageable memory or block the step",
        why="A copy from pageable memory goes through a buffer and blocks the host.",
        fix=always(do("Use DataLoader(pin_memory=True) and tensor.to('cuda', non_blocking=True).")),
        sources=("https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html",),
    ),
    Cause(
        id="job_hung",
        family="live",
        title="The job hangs",
        meaning="nothing moves: every rank's stack, and which one the others wait for",
        why="All ranks wait; without help this ends at the timeout, or never.",
        fix=always(
            do("See where each rank stands.", "py-spy dump --pid PID"),
            do("Run with the recorder on.", "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 torchrun ..."),
        ),
        sources=("https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html",),
    ),
    Cause(
        id="gpu_shared",
        severity="warning",
        family="live",
        title="Another job computes on the same GPU",
        meaning="another job computes on the same GPU",
        why="Kernels of both take turns: each gets a share of the GPU.",
        fix=then(
            smi("See which job it is.", "--query-compute-apps=pid,used_memory,name --format=csv"),
            another_card("Take another GPU"),
        ),
        sources=("https://docs.nvidia.com/deploy/mps/index.html",),
    ),
    Cause(
        id="machines_differ",
        family="environment",
        title="The machines of a fleet differ",
        meaning="reports of several machines differ in a fact that ranks of one job should share",
        why="Ranks of one job wait for the slowest and need the same software.",
        fix=always(do("Make the odd machine like the others, or leave it out of the job.")),
        sources=("https://docs.pytorch.org/docs/stable/elastic/run.html",),
    ),
    Cause(
        id="openmp_spinning",
        severity="warning",
        family="live",
        title="OpenMP threads spin for CPUs on which others compute",
        meaning="threads that wait for each other keep CPUs busy that others need, and every operation takes longer",
        why="After every operation the threads wait for the slowest, which has no CPU while others compute; those that "
        "wait keep theirs busy instead of letting it go.",
        fix=always(
            do("Let threads that wait sleep: libgomp, as in the wheels of PyTorch.", "export OMP_WAIT_POLICY=passive"),
            do("Set it for Intel's and LLVM's runtime.", "export KMP_BLOCKTIME=0"),
            do("Compute with no more threads than CPUs are left.", "export OMP_NUM_THREADS=1"),
        ),
        sources=(
            "https://gcc.gnu.org/onlinedocs/libgomp/OMP_005fWAIT_005fPOLICY.html",
            "https://www.intel.com/content/www/us/en/docs/dpcpp-cpp-compiler/developer-guide-reference/current/supported-environment-variables.html",
        ),
    ),
)

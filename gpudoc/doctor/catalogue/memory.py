"""Causes of memory that ran out or grows: on the GPU, on the host, in shared memory."""

from __future__ import annotations

from gpudoc.doctor.disruption import then
from gpudoc.doctor.model import Cause
from gpudoc.doctor.remedies import always, another_card, by_place, do, smi

_NOTES = "https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management"
_FAQ = "https://docs.pytorch.org/docs/stable/notes/faq.html"
_DATA = "https://docs.pytorch.org/docs/stable/data.html"

_MICRO = do("Make the micro batch smaller, and keep the global batch by accumulation.")
_TUNE = do("Let gpudoc find the largest batch that fits.", "gpudoc tune --model cfg.yaml")
_FEWER = do("Use fewer loader workers instead.")
_CAPACITY = ("oom_capacity",)

CAUSES: tuple[Cause, ...] = (
    Cause(
        id="oom_capacity",
        family="runtime",
        title="This program needs more memory than the GPU has",
        meaning="GPU memory is truly used up by this process: model, batch, sequence or image too large for the GPU",
        why="Weights, gradients, optimizer state and activations together are more than the GPU holds.",
        fix=always(
            _MICRO,
            do("Use mixed precision: torch.autocast('cuda', dtype=torch.bfloat16)."),
            do("Use activation checkpointing: torch.utils.checkpoint on the repeated blocks."),
            do("Change the allocator's settings next.", "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
            do("Choose a smaller width, depth, sequence or image next, and other hardware last."),
            _TUNE,
        ),
        sources=(_NOTES,),
        explains=("oom_masked_as_library_error",),
    ),
    Cause(
        id="oom_fragmentation",
        family="runtime",
        title="GPU memory is fragmented",
        meaning="reserved, unallocated memory exceeds the request and 15 % of GPU memory, in pieces too small for it",
        why="PyTorch holds enough memory, but no piece of it is large enough for the request.",
        fix=always(
            do("Let segments grow instead of being cut.", "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
            do("Use this setting on older torch or Windows.", "export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:512"),
            do("Keep shapes alike: pad to a few sizes, and drop the last small batch."),
        ),
        sources=(_NOTES,),
        explains=_CAPACITY,
    ),
    Cause(
        id="oom_other_process",
        family="runtime",
        title="Another process holds the GPU's memory",
        meaning="other or left-over processes hold the GPU's memory",
        why="What a crashed run, a notebook or another user holds is not there for this program.",
        fix=then(
            smi("See who holds the memory.", "--query-compute-apps=pid,used_memory,name --format=csv"),
            do("Look for left-over processes of your own that nvidia-smi may not show.", "fuser -v /dev/nvidia*"),
            another_card("End what is yours, or take another GPU"),
        ),
        sources=(_FAQ,),
        explains=("oom_capacity", "oom_masked_as_library_error"),
    ),
    Cause(
        id="oom_optimizer_state",
        family="runtime",
        title="Memory ran out when the optimizer made its state",
        meaning="OOM at the first optimizer.step, when Adam states are created",
        why="Adam keeps two more values per weight, made at the first step: twice the weights' size in fp32.",
        fix=always(
            do("Use an optimizer with less state: torch.optim.SGD, Adafactor, or an 8-bit Adam."),
            do("Share the state over several GPUs: FSDP, or ZeRO stage 1."),
            do("Train fewer weights: freeze layers, or use LoRA."),
            _MICRO,
        ),
        sources=("https://docs.pytorch.org/docs/stable/optim.html", _NOTES),
        explains=_CAPACITY,
    ),
    Cause(
        id="oom_variable_length_batch",
        family="runtime",
        title="Memory ran out at a rare long or large batch",
        meaning="OOM at a rare long or large batch",
        why="Most batches fit; the longest sample of the data set decides how much is needed.",
        fix=always(
            do("Sort by length for one pass, so that the largest batch comes first and fails at once."),
            do("Cut or drop what is too long, and build batches by total tokens instead of by count."),
            do("Let segments grow.", "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
        ),
        sources=(_FAQ,),
        explains=_CAPACITY,
    ),
    Cause(
        id="oom_eval_without_no_grad",
        family="runtime",
        title="Validation keeps the autograd graph",
        meaning="validation keeps autograd graphs",
        why="Without no_grad every activation is kept for a backward that never comes.",
        fix=always(
            do("Put `with torch.inference_mode():` around validation; model.eval() alone does not do it."),
            do("Use .item() for what is summed up over batches."),
        ),
        sources=("https://docs.pytorch.org/docs/stable/notes/autograd.html#locally-disabling-gradient-computation",),
        explains=_CAPACITY,
    ),
    Cause(
        id="oom_eval_accumulates_predictions",
        family="runtime",
        title="Evaluation collects all predictions on the GPU",
        meaning="evaluation gathers all logits on the GPU",
        why="Logits of the whole evaluation set, padded and joined, are larger than the model.",
        fix=always(
            do("Set eval_accumulation_steps=8 in Transformers, or let preprocess_logits_for_metrics keep only argmax."),
            do("Use outputs.append(logits.argmax(-1).cpu()) in a loop of your own, or a metric that keeps sums."),
        ),
        sources=("https://huggingface.co/docs/transformers/main_classes/trainer",),
        explains=("oom_capacity", "oom_eval_without_no_grad"),
    ),
    Cause(
        id="oom_after_batch_size_finder",
        family="runtime",
        title="The automatic batch size search chose a size that is too large",
        meaning="automatic batch-size search picks (or leaves) a size that fails in training",
        why="It tries a few steps; validation, longer samples, optimizer state and fragments come later.",
        fix=always(
            do("Take three quarters of the batch size that it found, and accumulate."),
            do("Start the training in a fresh process after the search."),
            _TUNE,
        ),
        sources=("https://lightning.ai/docs/pytorch/stable/advanced/training_tricks.html",),
        explains=_CAPACITY,
    ),
    Cause(
        id="oom_masked_as_library_error",
        family="runtime",
        title="A cuBLAS or cuDNN error hides that GPU memory ran out",
        meaning="cuBLAS/cuDNN handle or algorithm error that is really OOM",
        why="A library that finds no room for its workspace reports a failed initialisation instead.",
        fix=always(
            do("Try a much smaller batch: if it runs, the cause is memory."),
            do(
                "Find the true error on the CPU or synchronously if it does not run.",
                "CUDA_LAUNCH_BLOCKING=1 python train.py",
            ),
        ),
        sources=("https://github.com/pytorch/pytorch/issues/27588",),
    ),
    Cause(
        id="leak_graph_kept",
        family="runtime",
        title="Losses or outputs are kept with their graph",
        meaning="losses or outputs kept with their graph, memory grows each step",
        why="A kept loss keeps every activation of its step; memory grows until it is used up.",
        fix=always(
            do("Write total += loss.item() instead of total += loss, and outputs.append(out.detach().cpu())."),
            do("Detach hidden states between batches (h = h.detach()); retain_graph=True is rarely needed."),
        ),
        sources=(_FAQ,),
        explains=("oom_capacity", "gpu_memory_leak", "oom_variable_length_batch"),
    ),
    Cause(
        id="gpu_memory_leak",
        family="live",
        title="GPU memory grows from step to step",
        meaning="GPU memory grows steadily from step to step; with the time left",
        why="At this rate the job ends with out of memory.",
        fix=always(
            do("See what is kept: torch.cuda.memory._record_memory_history(), then the snapshot viewer."),
            do("Keep numbers, not tensors: loss.item()."),
        ),
        sources=("https://docs.pytorch.org/docs/stable/torch_cuda_memory.html",),
    ),
    Cause(
        id="extra_contexts_on_gpu0",
        severity="warning",
        family="runtime",
        title="Other ranks also keep a CUDA context on GPU 0",
        meaning="other ranks also open a CUDA context or load a checkpoint on GPU 0",
        why="Each takes several hundred MiB of the GPU that has the least to spare.",
        fix=always(
            do("Call torch.cuda.set_device(local_rank) before the first CUDA call of each rank."),
            do("Use torch.load(path, map_location='cpu'), and the same in every library that loads."),
        ),
        sources=("https://docs.pytorch.org/docs/stable/generated/torch.load.html",),
        explains=("duplicate_gpu_ranks", "oom_capacity", "oom_variable_length_batch"),
    ),
    Cause(
        id="vram_spill_to_system_memory",
        severity="warning",
        family="runtime",
        title="The Windows driver moves GPU memory to host memory",
        meaning="Windows/WSL driver moves GPU memory to host memory: very slow instead of OOM",
        why="Instead of an error the program gets memory behind PCIe, ten times slower and more.",
        fix=always(
            do(
                "Set CUDA - Sysmem Fallback Policy to Prefer No Sysmem Fallback, in NVIDIA Control Panel > Manage 3D "
                "settings."
            ),
            _MICRO,
        ),
        sources=("https://nvidia.custhelp.com/app/answers/detail/a_id/5490",),
    ),
    Cause(
        id="host_oom_killed",
        family="runtime",
        title="Host memory ran out, and a process was killed",
        meaning="host memory exhausted, kernel or cgroup kills a worker or rank",
        why="The kernel or the container's limit ends a process without a Python error.",
        fix=by_place(
            (
                do(
                    "See which process was killed, and by which limit.",
                    "sudo dmesg | grep -i -e oom -e 'killed process'",
                    root=True,
                ),
                do(
                    "Use fewer loader workers and a smaller prefetch_factor, and load lazily (memory map), not whole "
                    "files."
                ),
            ),
            slurm=(do("Ask for more memory.", "sbatch --mem=64G job.sh"), _FEWER),
            kubernetes=(do("Raise resources.limits.memory of the container."), _FEWER),
            docker=(do("Raise the container's limit.", "docker run --memory 64g ..."), _FEWER),
            colab=(do("Use fewer loader workers and a smaller data set in memory, or a runtime with high RAM."),),
        ),
        sources=("https://docs.kernel.org/admin-guide/mm/concepts.html", _DATA),
    ),
    Cause(
        id="worker_copy_on_write_growth",
        severity="warning",
        family="runtime",
        title="Forked loader workers copy large Python lists bit by bit",
        meaning="forked workers slowly copy large Python lists or dicts",
        why="Reading an object writes its reference count, and the page is copied: each worker ends with its own.",
        fix=always(
            do("Keep the index as one NumPy array, Arrow table or torch tensor instead of a list of Python objects."),
            do("Use fewer loader workers, or a server process (multiprocessing.Manager) for what must stay Python."),
        ),
        sources=("https://github.com/pytorch/pytorch/issues/13246",),
        explains=("host_oom_killed", "shm_too_small"),
    ),
    Cause(
        id="host_memory_leak",
        severity="warning",
        family="live",
        title="Host memory grows steadily",
        meaning="the memory of the main process or of the workers grows steadily; with the time left",
        why="At this rate the kernel will kill the job.",
        fix=always(
            do("Find which process grows: main keeps results; workers copy Python objects, or cache without limit."),
            do("See what allocates.", "memray attach PID"),
        ),
        sources=("https://github.com/pytorch/pytorch/issues/13246",),
    ),
    Cause(
        id="shm_too_small",
        family="runtime",
        title="Shared memory is too small for the loader workers",
        meaning="/dev/shm too small for loader workers (containers)",
        why="Workers hand batches over in /dev/shm; docker gives 64 MB unless told otherwise.",
        fix=by_place(
            (
                do("See how much shared memory there is.", "df -h /dev/shm"),
                do("Make shared memory larger.", "sudo mount -o remount,size=16G /dev/shm", root=True),
            ),
            docker=(
                do(
                    "Start the container with more, or with the host's.",
                    "docker run --shm-size=16g ... # or --ipc=host",
                ),
            ),
            kubernetes=(do("Mount an emptyDir with medium: Memory at /dev/shm."),),
        ),
        sources=(_DATA, "https://docs.docker.com/reference/cli/docker/container/run/"),
        explains=("host_oom_killed",),
    ),
    Cause(
        id="nccl_shm_too_small",
        family="runtime",
        title="Shared memory is too small for NCCL",
        meaning="/dev/shm too small for NCCL",
        why="Ranks on one machine talk through segments in /dev/shm when GPUs have no direct path.",
        fix=by_place(
            (do("Make shared memory larger.", "sudo mount -o remount,size=16G /dev/shm", root=True),),
            docker=(do("Start the container with more.", "docker run --shm-size=16g ... # or --ipc=host"),),
            kubernetes=(do("Mount an emptyDir with medium: Memory at /dev/shm."),),
        ),
        sources=("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",),
        explains=("shm_too_small",),
    ),
    Cause(
        id="too_many_open_files",
        family="runtime",
        title="The limit on open files is reached",
        meaning="file descriptor limit used up by worker tensors",
        why="Each tensor that a worker hands over keeps a file open until it is freed.",
        fix=always(
            do("Raise the limit for this shell.", "ulimit -n 65535"),
            do(
                "Call torch.multiprocessing.set_sharing_strategy('file_system') instead, and keep no batches in a list."
            ),
        ),
        sources=("https://docs.pytorch.org/docs/stable/multiprocessing.html#sharing-strategies",),
    ),
    Cause(
        id="temporary_folder_path_too_long",
        family="runtime",
        title="The path of the temporary folder is too long for a socket",
        meaning="TMPDIR is so long that the socket of a loader worker or a manager below it cannot be made",
        why="A worker hands its tensors over through a socket there: without it the DataLoader waits for ever, or a "
        "process of multiprocessing dies.",
        fix=always(do("Point TMPDIR to a short folder, in the shell or the job script.", "export TMPDIR=/tmp")),
        sources=("https://github.com/python/cpython/issues/93852",),
        explains=("job_hung",),
    ),
)

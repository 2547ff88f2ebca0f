"""Causes in the program: indices, precision, scaler, checkpoints, devices; and several processes together."""

from __future__ import annotations

from gpudoc.doctor.model import Cause
from gpudoc.doctor.remedies import always, do

_AMP = "https://docs.pytorch.org/docs/stable/notes/amp_examples.html"
_DDP = "https://docs.pytorch.org/docs/stable/notes/ddp.html"
_NCCL = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
_BLOCKING = do(
    "Run synchronously, or a few steps on the CPU, to see the true line.", "CUDA_LAUNCH_BLOCKING=1 python train.py"
)

CAUSES: tuple[Cause, ...] = (
    Cause(
        id="label_out_of_range",
        family="runtime",
        title="A target class is outside 0 to n_classes - 1",
        meaning="target class outside 0..n_classes-1",
        why="The loss looks up a class that the output does not have; on the GPU this ends the whole process.",
        fix=always(
            do("Write assert 0 <= target.min() and target.max() < logits.shape[1] before the loss."),
            do("Subtract 1 from labels that start at 1, set ignore_index for a void label, or add outputs."),
            _BLOCKING,
        ),
        sources=("https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html",),
        explains=("oom_masked_as_library_error", "illegal_memory_access", "embedding_index_out_of_range"),
    ),
    Cause(
        id="embedding_index_out_of_range",
        family="runtime",
        title="An index is beyond the rows of an embedding or table",
        meaning="token or index beyond the embedding's rows",
        why="The look-up reads past the table; on the GPU the error shows up later and elsewhere.",
        fix=always(
            do("Write assert input_ids.max() < model.get_input_embeddings().num_embeddings before the model."),
            do(
                "Call model.resize_token_embeddings(len(tokenizer)) for new tokens; cut long texts: truncation=True, "
                "max_length=..."
            ),
            _BLOCKING,
        ),
        sources=("https://docs.pytorch.org/docs/stable/generated/torch.nn.Embedding.html",),
        explains=("oom_masked_as_library_error", "illegal_memory_access", "label_out_of_range"),
    ),
    Cause(
        id="illegal_memory_access",
        family="runtime",
        title="A kernel read or wrote outside its memory",
        meaning="a kernel reads or writes outside its memory: a fault of the program or a kernel, not of the GPU",
        why="The process is lost; the same values again and again speak for the program, changing ones for the GPU.",
        fix=always(
            _BLOCKING,
            do("Find which kernel it is.", "compute-sanitizer python train.py"),
            do("Update the extension or library whose kernel it is, then try without it."),
        ),
        sources=("https://docs.nvidia.com/compute-sanitizer/ComputeSanitizer/index.html",),
    ),
    Cause(
        id="kernel_launch_timeout",
        family="runtime",
        title="The display's watchdog ended a long kernel",
        meaning="display watchdog (TDR) ends a long kernel",
        why="A GPU that also drives a screen may not compute longer than some seconds at a stretch.",
        fix=always(
            do("Use a GPU without a screen, or make the work of one kernel smaller (batch, image)."),
            do("Raise TdrDelay on Windows in HKLM\\System\\CurrentControlSet\\Control\\GraphicsDrivers, then restart."),
        ),
        sources=("https://learn.microsoft.com/windows-hardware/drivers/display/tdr-registry-keys",),
    ),
    Cause(
        id="invalid_device_ordinal",
        family="runtime",
        title="The program asks for a GPU number that does not exist here",
        meaning="a rank or setting names a GPU that does not exist or is not visible",
        why="Numbers count the visible devices from 0, whatever they are called outside.",
        fix=always(
            do("See how many GPUs are visible.", "python -c 'import torch; print(torch.cuda.device_count())'"),
            do("Start no more processes than that.", "torchrun --nproc-per-node=gpu train.py"),
            do("Load a checkpoint from another machine with torch.load(path, map_location='cpu')."),
        ),
        sources=("https://docs.pytorch.org/docs/stable/elastic/run.html",),
    ),
    Cause(
        id="amp_fp16_params_with_scaler",
        family="runtime",
        title="GradScaler is used with weights in float16",
        meaning="GradScaler with trainable weights in fp16",
        why="The scaler needs float32 gradients; with float16 weights it refuses.",
        fix=always(
            do("Keep trainable weights in float32 and let autocast do the rest: model.float(), then torch.autocast."),
            do("Cast the adapters of LoRA on a half model: for p in trainable: p.data = p.data.float()."),
        ),
        sources=(_AMP,),
    ),
    Cause(
        id="amp_no_gradients",
        family="runtime",
        title="GradScaler finds no gradient",
        meaning="GradScaler finds no gradient at all (detached or constant loss, frozen weights)",
        why="No weight of this optimizer got a gradient: nothing would be learned.",
        fix=always(
            do("Check loss.requires_grad, and that some p in optimizer.param_groups has p.grad after backward."),
            do("Look for .detach(), .item(), no_grad or frozen weights between model and loss."),
        ),
        sources=(_AMP,),
    ),
    Cause(
        id="amp_scaler_misuse",
        family="runtime",
        title="GradScaler and optimizer are called in the wrong order",
        meaning="scaler and optimizer step called wrongly",
        why="unscale_, step and update belong together once per optimizer step.",
        fix=always(
            do("Call scaler.scale(loss).backward(); scaler.unscale_(opt); clip; scaler.step(opt); scaler.update().")
        ),
        sources=(_AMP,),
    ),
    Cause(
        id="fp16_overflow_nan",
        family="runtime",
        title="Values overflow float16",
        meaning="values overflow fp16: NaN loss or scale collapse",
        why="float16 ends at 65504; beyond it there is inf, then NaN, and every step is skipped.",
        fix=always(
            do(
                "Use bfloat16 instead where the GPU has it (capability 8.0 and up): torch.autocast('cuda', "
                "dtype=torch.bfloat16)."
            ),
            do("Lower the learning rate elsewhere, clip gradients after unscale_, keep softmax and norms in float32."),
        ),
        sources=("https://docs.pytorch.org/docs/stable/amp.html",),
    ),
    Cause(
        id="bf16_unsupported_gpu",
        family="runtime",
        title="bfloat16 is requested on a GPU that does not have it",
        meaning="bf16 asked for on a GPU below compute capability 8.0",
        why="V100, T4, RTX 20 and older have no bfloat16 units.",
        fix=always(do("Use float16 with a GradScaler (fp16=True, precision='16-mixed'), or float32.")),
        sources=("https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#arithmetic-instructions",),
    ),
    Cause(
        id="half_on_cpu",
        family="runtime",
        title="A float16 operation runs on the CPU",
        meaning="fp16 operation on the CPU",
        why="Many operations have no float16 version for the CPU; the model or a tensor was not moved to the GPU.",
        fix=always(
            do("Move model and inputs to the GPU, if meant for it: .to('cuda'); check torch.cuda.is_available()."),
            do("Use float32 or bfloat16 if meant for the CPU (torch_dtype=torch.float32, --no-half)."),
        ),
        sources=("https://docs.pytorch.org/docs/stable/amp.html",),
    ),
    Cause(
        id="training_on_cpu",
        severity="warning",
        family="runtime",
        title="The program runs on the CPU by mistake",
        meaning="runs on the CPU by mistake",
        why="It works, ten to a hundred times slower than on the GPU that is there.",
        fix=always(
            do("Check that torch can use the GPU at all.", "gpudoc doctor"),
            do("Move model and data to the GPU: device='cuda', or in Lightning accelerator='gpu', devices=1."),
        ),
        sources=("https://docs.pytorch.org/docs/stable/notes/cuda.html",),
    ),
    Cause(
        id="state_dict_module_prefix",
        family="runtime",
        title='Checkpoint keys differ by "module."',
        meaning='checkpoint keys with or without "module."',
        why="DistributedDataParallel and DataParallel wrap the model and put that word before every key.",
        fix=always(
            do("Save model.module.state_dict()."),
            do(
                "Rename an old checkpoint's keys: {k.removeprefix('module.'): v for k, v in state.items()}; _orig_mod. "
                "after compile alike."
            ),
        ),
        sources=("https://docs.pytorch.org/tutorials/beginner/saving_loading_models.html",),
    ),
    Cause(
        id="cuda_in_forked_worker",
        family="runtime",
        title="CUDA is used in a forked process",
        meaning="CUDA used in a forked loader worker",
        why="CUDA cannot be used in a process that was forked after CUDA was initialised.",
        fix=always(
            do("Return CPU tensors from the data set, and move them in the loop, with pin_memory=True."),
            do("Set DataLoader(..., multiprocessing_context='spawn') if CUDA is needed there."),
        ),
        sources=("https://docs.pytorch.org/docs/stable/notes/multiprocessing.html",),
    ),
    Cause(
        id="ddp_unused_parameters",
        family="runtime",
        title="Some parameters take no part in the loss",
        meaning="parameters outside the loss under DDP",
        why="DDP waits for the gradient of every parameter; one that gets none stops the next step.",
        fix=always(
            do(
                "See which parameters they are.",
                "TORCH_DISTRIBUTED_DEBUG=DETAIL torchrun --nproc-per-node=gpu train.py",
            ),
            do("Freeze or remove them, use every output in the loss, or set DDP(..., find_unused_parameters=True)."),
        ),
        sources=(_DDP,),
    ),
    Cause(
        id="ddp_uneven_inputs",
        family="runtime",
        title="Ranks have different numbers of batches",
        meaning="ranks have different numbers of batches",
        why="A rank that has run out no longer takes part, and the others wait for it until the timeout.",
        fix=always(
            do("Use DistributedSampler(..., drop_last=True), or take as many steps on every rank."),
            do("Put `with torch.distributed.algorithms.join.Join([model]):` around the loop instead."),
        ),
        sources=("https://docs.pytorch.org/tutorials/advanced/generic_join.html",),
        explains=("nccl_timeout_one_rank_busy", "nccl_p2p_hang"),
    ),
    Cause(
        id="nccl_timeout_one_rank_busy",
        family="runtime",
        title="One rank does long work while the others wait",
        meaning="one rank does long work (tokenizing, saving, evaluation) while others wait",
        why="Collectives have a deadline of 10 to 30 minutes; the waiting ranks end the job.",
        fix=always(
            do("Do the long work before init_process_group, in all ranks, or in a script of its own."),
            do("Set a longer deadline instead: init_process_group(timeout=timedelta(hours=2))."),
            do(
                "See which rank and which call it is.",
                "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 torchrun ...",
            ),
        ),
        sources=("https://docs.pytorch.org/docs/stable/distributed.html",),
    ),
    Cause(
        id="collective_mismatch",
        family="runtime",
        title="Ranks call different collectives",
        meaning="ranks meet in different collectives, or with tensors of different shapes",
        why="NCCL matches calls by their order alone: ranks that differ in one hang there, or get wrong numbers.",
        fix=always(
            do("Look at the places named for a branch or a loop that differs between ranks."),
            do("Have PyTorch check each call before it is made.", "TORCH_DISTRIBUTED_DEBUG=DETAIL torchrun train.py"),
        ),
        sources=("https://docs.pytorch.org/docs/stable/distributed.html",),
        explains=("nccl_timeout_one_rank_busy",),
    ),
    Cause(
        id="nccl_p2p_hang",
        family="runtime",
        title="The direct path between GPUs is broken",
        meaning="broken GPU peer-to-peer path (ACS, IOMMU, driver)",
        why="Ranks start and then wait for ever, or get wrong numbers, at the first copy between GPUs.",
        fix=always(
            do(
                "Try it without the direct path: if it runs, that is the cause.",
                "NCCL_P2P_DISABLE=1 torchrun --nproc-per-node=2 train.py",
            ),
            do("Switch IOMMU or PCIe ACS off in the firmware for good (or set iommu=pt on the kernel's command line)."),
        ),
        sources=(_NCCL,),
        explains=("nccl_timeout_one_rank_busy",),
    ),
    Cause(
        id="p2p_unsupported_rtx40",
        family="runtime",
        title="accelerate refuses RTX 40 GPUs until two NCCL variables are set",
        meaning="accelerate refuses RTX 40 GPUs without the NCCL variables",
        why="GeForce GPUs since the 40 series have no peer-to-peer; the launch must switch it off.",
        fix=always(
            do("Set both variables.", "export NCCL_P2P_DISABLE=1 NCCL_IB_DISABLE=1"),
            do("Start with accelerate launch instead, which sets them.", "accelerate launch train.py"),
        ),
        sources=("https://huggingface.co/docs/accelerate/usage_guides/explore",),
    ),
    Cause(
        id="nccl_wrong_interface",
        family="runtime",
        title="NCCL or gloo uses the wrong network interface",
        meaning="NCCL or gloo binds to lo, docker or another wrong interface",
        why="Ranks announce an address that the other machines cannot reach.",
        fix=always(
            do("See which interface reaches the other node.", "ip route get OTHER_NODE_ADDRESS"),
            do("Set this interface on every node.", "export NCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth0"),
            do("Check that the node's own name does not resolve to 127.0.0.1.", "getent hosts $(hostname)"),
        ),
        sources=("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",),
        explains=("nccl_network_unreachable", "nccl_p2p_hang", "nccl_timeout_one_rank_busy"),
    ),
    Cause(
        id="nccl_network_unreachable",
        family="runtime",
        title="The nodes cannot reach each other on the ports that they need",
        meaning="nodes cannot reach each other on NCCL's ports (firewall)",
        why="Besides the rendezvous port NCCL uses random ones; a firewall between nodes stops it.",
        fix=always(
            do("Check that the master's port can be reached.", "nc -zv MASTER_ADDR 29500"),
            do(
                "Open all ports between the nodes, or fix the range: net.ipv4.ip_local_port_range.",
                "sudo ufw allow from OTHER_NODE_ADDRESS",
                root=True,
            ),
        ),
        sources=(_NCCL,),
        explains=("nccl_timeout_one_rank_busy",),
    ),
    Cause(
        id="port_in_use",
        family="runtime",
        title="The rendezvous port is already in use",
        meaning="rendezvous port taken",
        why="Another run, or what is left of one, listens there.",
        fix=always(
            do("See who uses the port.", "ss -ltnp | grep 29500"),
            do("Take a free port.", "torchrun --standalone --nproc-per-node=gpu train.py"),
        ),
        sources=("https://docs.pytorch.org/docs/stable/elastic/run.html",),
        explains=("nccl_network_unreachable",),
    ),
    Cause(
        id="duplicate_gpu_ranks",
        family="runtime",
        title="Two ranks use the same GPU",
        meaning="two ranks on one GPU",
        why="NCCL needs one GPU per rank; the program sets the same device in all of them.",
        fix=always(
            do("Call torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) first in each rank; use no fixed 'cuda:0'."),
            do("Start no more ranks than GPUs.", "torchrun --nproc-per-node=gpu train.py"),
        ),
        sources=(_NCCL,),
    ),
    Cause(
        id="dataparallel_imbalance",
        severity="warning",
        family="runtime",
        title="nn.DataParallel fills the first GPU and is slow",
        meaning="nn.DataParallel fills GPU 0 and is slow",
        why="Outputs are gathered and the loss is computed on GPU 0; one Python process drives all GPUs.",
        fix=always(
            do("Use DistributedDataParallel, with one process per GPU.", "torchrun --nproc-per-node=gpu train.py"),
            do("Compute the loss inside forward instead, so that only a number is gathered."),
        ),
        sources=("https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html",),
        explains=("oom_capacity",),
    ),
)

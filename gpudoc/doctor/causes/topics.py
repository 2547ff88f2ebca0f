"""What a text is about when no mechanism shows itself: guesses by topic and by single words, never a verdict."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from gpudoc.doctor.causes.sign import words
from gpudoc.doctor.model import Finding, observe
from gpudoc.facts.readers.model import Mention, Text
from gpudoc.knowledge.wording import HEALTHY, Likelihood, weigh

# each word of a topic makes it likelier, a word that stands in most reports (~) half as much as one that tells topics
# apart; none is ever as sure as a mechanism
_LEAST = 1.0
_COMMON = 0.5
_MOST_CANDIDATES = 3
# the weights of the two ways to guess against each other, and what counts as one at all
_TOPIC, _MOST_OF_A_TOPIC, _WORDING, _LEAST_SHARE = 0.07, 0.4, 0.4, 0.03
# the words of a text without a complaint, or with one, that settle whether anything is guessed
_FAULTY_SHARE, _HEALTHY_SHARE = 0.2, 0.5
_SUREST = 0.3
# words of a topic stand between semicolons, other ways to say one between bars
_TOPICS: Mapping[str, str] = {
    "cpu_only_torch": r"\+cpu\b ; cpuonly ; \bcpu (?:version|build) ; pip3? install torch ; not compiled ; reinstall",
    "driver_too_old": (
        r"\bdriver\b ; too old|older|update|upgrade ; cuda (?:version|1[0-3]\.\d) ; \b4\d\d\.\d+ ; insufficient"
    ),
    "library_path_shadows_bundled": r"LD_LIBRARY_PATH ; cudnn ; cublas ; /usr/local/cuda ; libcu\w+ ; ~version",
    "gpu_newer_than_wheel_archs": (
        r"\bsm_\d+ ; RTX 50\d0|blackwell|B200 ; nightly ; cu12[89]|cu13\d ; capability ; kernel image"
    ),
    "gpu_older_than_wheel_archs": (
        r"\bsm_\d+ ; kepler|maxwell|pascal|volta|GTX|K80|P100 ; too old ; capability ; no longer"
    ),
    "driver_library_mismatch": r"mismatch ; \bnvml\b ; apt (?:upgrade|update)|unattended ; reboot ; kernel module",
    "mixed_cuda_packages": r"cu1[123]\b ; cudatoolkit ; conda .{0,80}pip ; uninstall ; two versions ; conflict",
    "torchvision_torch_mismatch": r"torchvision ; \bnms\b ; operator ; incompatible ; reinstall",
    "container_without_gpu_access": (
        r"docker|podman|container|pod\b ; --gpus|nvidia-docker ; nvidia-smi ; image ; compose ; ~runtime"
    ),
    "container_lost_gpu_cgroup": (
        r"docker|container|pod\b ; unknown error ; cgroup ; systemd ; after (?:a while|some|hours|days)"
    ),
    "driver_missing_or_not_loaded": r"nvidia-smi ; \bdriver\b ; modprobe|lsmod|dkms ; kernel ; not found|missing",
    "no_gpu_on_machine": (
        r"no gpu|without gpu ; ~colab|kaggle|runtime ; slurm|srun|partition ; login node ; cpu[- ]only ; lspci"
    ),
    "uvm_broken_after_suspend": r"suspend|sleep|hibernate|resume ; unknown error ; nvidia_uvm ; reboot ; laptop",
    "device_permission_denied": r"permission ; sudo|root ; group ; /dev/nvidia|/dev/kfd ; udev",
    "gpu_hardware_fault": (
        r"\bxid\b ; \bpsu\b|power supply ; reboot|crash|freeze ; riser|slot ; hardware|faulty|rma ; only on "
        r"gpu|one gpu"
    ),
    "gpu_fallen_off_bus": r"lost ; \bbus\b ; \bpcie?\b ; disappear|vanish|drops? ; \bxid\b",
    "thermal_throttle": r"temperature|thermal ; clock|mhz ; throttl ; fan|cooling ; ~slow|drop",
    "pcie_link_degraded": r"pcie ; \bgen ?\d ; \bx(?:1|4|8|16)\b ; bandwidth ; riser|slot|bios",
    "oom_capacity": r"~memory ; batch size ; reduce|smaller ; ~gpu ; ~model",
    "oom_other_process": r"~memory ; ~process ; kill ; nvidia-smi ; another|other|zombie ; notebook|kernel",
    "leak_graph_kept": r"~memory ; increas|grow|leak ; \bloss\b ; detach|item ; ~iteration|step|epoch",
    "host_oom_killed": r"\bram\b|host memory|cpu memory ; killed|kill ; swap ; ~dataset|loader ; sigkill|137|-9",
    "worker_copy_on_write_growth": r"workers? ; ~memory|ram ; increas|grow|leak ; list|dict ; fork|copy",
    "shm_too_small": r"shm|shared memory ; docker|container ; bus error|sigbus ; workers? ; ipc",
    "fp16_overflow_nan": r"~\bnans?\b|\binf\b ; fp16|half|amp|mixed precision ; loss ; scaler? ; overflow",
    "label_out_of_range": r"assert ; label|target|class ; loss ; num_classes|n_classes ; cross_?entropy",
    "embedding_index_out_of_range": (
        r"embedding ; index ; token|vocab ; assert ; out of (?:range|bounds) ; max_length|position"
    ),
    "training_on_cpu": (
        r"\bcpu\b ; slow|\d ?(?:hours|hrs|days)\b|per iteration|whole night ; gpu (?:is )?not used|"
        r"not using ; ~device ; "
        r"~cuda ; ~train|epoch|iteration"
    ),
    "ddp_unused_parameters": r"unused ; parameters? ; ddp|distributed ; find_unused ; grad",
    "ddp_uneven_inputs": (
        r"hang|stuck|timeout ; ddp|distributed|rank ; last batch|end of ; drop_last|sampler ; different"
    ),
    "nccl_timeout_one_rank_busy": (
        r"nccl ; timeout|timed out ; rank ?0|main process ; barrier|wait ; tokeniz|preprocess|saving|eval"
    ),
    "nccl_p2p_hang": r"nccl ; hang|stuck|freeze ; p2p|peer ; iommu|acs ; ~two|2 gpus|multi",
    "nccl_wrong_interface": r"nccl|gloo ; interface|ifname ; \beth\d|\blo\b|docker0 ; node ; connect",
    "nccl_network_unreachable": (
        r"nccl|c10d|rendezvous ; connect|refused|unreachable ; node|master ; port|firewall ; timeout"
    ),
    "duplicate_gpu_ranks": r"rank ; same gpu|same device|cuda:0 ; local_rank|set_device ; nccl",
    "dataparallel_imbalance": r"DataParallel ; ~memory ; ~gpu ?0|first gpu|cuda:0 ; imbalance|uneven|unbalanced ; slow",
    "extra_contexts_on_gpu0": r"~rank|process ; gpu ?0|cuda:0 ; map_location|torch.load ; ~memory ; context|extra",
    "too_few_workers": r"num_workers|workers ; ~slow|util ; dataloader|data loading ; bottleneck",
    "too_many_workers": r"num_workers|workers ; ~cpu|core ; too many|exceed|more than ; ~slow|freeze",
    "dataloader_bottleneck": (
        r"dataloader|data loading|data time ; ~slow|bottleneck|wait ; gpu.{0,10}util|idle ; ~cpu ; ~train|epoch|"
        r"iteration"
    ),
    "workers_recreated_each_epoch": (
        r"~epoch ; workers? ; ~start|beginning|between ; ~slow|pause|wait|seconds ; persistent"
    ),
    "cpu_oversubscription": r"threads? ; ~cpu|core ; OMP_|MKL_|set_num_threads ; slow ; ~process",
    "cgroup_cpu_limit": r"container|docker|pod|kubernetes ; ~cpu|core ; limit|quota|throttl ; slow ; nproc|cpu_count",
    "slow_storage": r"~disk|drive|storage|nfs|ssd|hdd ; slow|hours ; ~read|load ; images|files|dataset ; copy",
    "gpu_sync_each_step": r"\.item\(\)|synchroniz|\.cpu\(\) ; profil|trace|nsight ; ~step|iteration ; wait|gap|idle",
    "launch_bound": r"small|tiny ; kernel ; launch|overhead ; ~cpu ; util",
    "compile_recompiles": r"compile|dynamo|inductor ; recompil ; slow ; shape|dynamic ; cache",
    "tf32_off": r"tf32|tensorfloat ; float32|fp32 ; slow ; a100|ampere|rtx 30 ; matmul",
    "vram_spill_to_system_memory": r"windows ; shared ; ~memory|vram ; slow ; driver",
    "extension_torch_abi_mismatch": (
        r"undefined symbol|symbol not found ; \.so\b ; rebuild|reinstall|compile ; flash|xformers|mmcv|apex"
    ),
    "extension_built_for_other_cuda": (
        r"libcudart|libcublas ; flash|xformers|mmcv|apex|bitsandbytes ; cuda version ; nvcc|compile"
    ),
    "illegal_memory_access": r"illegal ; memory access ; kernel ; \bxid\b ; triton|custom|extension",
    "state_dict_module_prefix": r"state_dict ; module\. ; ~load ; key ; checkpoint",
    "visible_devices_hides_gpu": r"CUDA_VISIBLE_DEVICES ; False|not available ; ~gpu ; -1 ; export",
    "visible_devices_set_too_late": (
        r"os\.environ|env_set|putenv|%env ; CUDA_VISIBLE_DEVICES ; ~gpu ?0|cuda:0|first gpu|"
        r"all gpus ; import ; ~script|code"
    ),
    "invalid_device_ordinal": (
        r"ordinal|cuda:[1-9]\b ; gpu_?ids?|device_?ids?|nproc_per_node ; (?:one|single|1) gpu ; ~rank|index"
    ),
    "triton_torch_mismatch": (
        r"\btriton\b ; inductor|torch\.compile|dynamo ; (?:Import|Attribute)Error ; ~upgrade|downgrade|pin"
    ),
    "half_on_cpu": r"\bhalf\b|fp16|float16 ; ~\bcpu\b ; not implemented ; ~float32|\.float\(\)",
    "bf16_unsupported_gpu": r"\bbf16\b|bfloat16 ; V100|\bT4\b|P100|P40|turing|volta|RTX 20 ; ~not support|unsupported",
    "mps_macos_too_old": r"\bmps\b ; mac ?os|macbook ; ~not (?:available|supported) ; sw_vers|ventura|monterey|sonoma",
    "glibc_too_old": r"\bglibc ; centos|rhel|red hat ; manylinux ; ~old",
    "libstdcxx_too_old": r"glibcxx|cxxabi|libstdc\+\+ ; \bgcc\b ; ~conda",
    "numpy2_abi": r"\bnumpy\b ; numpy\W{0,4}2\b|numpy ?< ?2 ; \babi\b|_ARRAY_API ; downgrade",
    "libcuda_not_linkable": r"-lcuda\b|libcuda\.so\b ; \bld\b|collect2|linker ; symlink ; ~triton|compile",
    "libcuda_mismatch_803": r"\bcompat\b ; \b803\b|display driver ; ~container|docker|image ; LD_LIBRARY_PATH",
    "forward_compat_on_consumer_gpu": r"forward compat\w* ; \b804\b ; \bcompat\b ; ~geforce|rtx|gtx",
    "python_unsupported_by_wheel": r"no matching distribution|from versions ; \bwheels? ; python ?3\.\d+ ; ~pip|"
    r"uv|poetry",
    "windows_dll_dependency_missing": r"\bdll\b|\.dll\b ; winerror ; redistributable|vc_redist|vcruntime ; ~windows",
    "bundled_cuda_library_missing": (
        r"\blib(?:cudnn|cublas|cudart|nccl|cufft|nvrtc)\w* ; cannot open|missing ; site-packages/nvidia ; ~poetry|bazel"
    ),
    "extension_missing_arch": r"kernel image|device function ; setup\.py|compile\w*|nvcc ; _cuda\b|\bops\b ; sm_\d+",
    "wrong_accelerator_build": (
        r"\bamd\b|radeon|rocm|intel|xpu ; ~nvidia|cuda ; ~torch ; install ; not (?:found|available)"
    ),
    "gsp_firmware_timeout": r"\bgsp\b ; \bxid\b ; nvidia-smi.{0,20}hang ; firmware",
    "vgpu_unlicensed": r"\bvgpu\b|\bGRID\b ; licen[sc]e ; slow|throttl ; \bvm\b|virtual machine",
    "nvidia_uvm_missing": r"nvidia[-_]uvm|\buvm\b ; lxc|proxmox ; modprobe ; unknown error",
    "nouveau_loaded": r"nouveau ; blacklist ; ~driver ; initramfs",
    "secure_boot_blocks_module": r"secure ?boot ; \bMOK\b|\bsign(?:ed|ing)\b ; ~driver ; modprobe",
    "kernel_launch_timeout": r"\bTDR\b|watchdog ; screen|monitor goes ; launch timed ; ~windows",
    "mig_enabled_no_instance": r"\bMIG\b ; instance|slice|partition ; A100|H100|A30 ; ~device",
    "mps_daemon_unreachable": r"CUDA_MPS|\bMPS (?:server|daemon|control) ; multi-?process service ; daemon",
    "fabric_manager_not_running": r"fabric ?manager ; nvswitch|\bHGX\b|\bDGX\b|\bSXM ; \b802\b ; nvlink",
    "compute_mode_exclusive": r"exclusive ; compute mode ; busy or unavailable ; (?:second|another) process",
    "gpu_ecc_error": r"\becc\b ; uncorrectable ; \bxid\b ; remapp|retired",
    "wsl_wrong_driver_inside": r"\bwsl ; libcuda ; apt install ; nvidia-smi",
    "wsl_windows_or_kernel_too_old": r"\bwsl ; windows build|insider ; /dev/dxg ; wsl --update ; ~kernel",
    "container_toolkit_missing": (
        r"nvidia-container|nvidia-docker ; runtime ; docker|podman|kubernetes ; device[- ]plugin"
    ),
    "jetson_generic_wheel": r"jetson|jetpack|tegra|\bxavier\b|\borin\b ; aarch64|arm64 ; wheel ; pip3? install torch",
}


# what somebody says for whom nothing fails and something is wrong
_COMPLAINT = words(
    r"\bslow\w*",
    r"\b(?:hang|hung|stuck|freez|frozen|leak|crash|stall|lag)\w*",
    r"(?:too|very|so) (?:long|much|low|high)\b",
    r"\b(?:wrong|strange|weird|abnormal|unexpected)\b",
    r"(?:memory|ram|usage)[^.\n]{0,40}(?:grow\w*|increas\w*)",
    r"\b(?:doesn't|does not|can ?not|can't|don't|isn't|not) (?:work|use|see|find|detect|recogni[sz]e|utili[sz]e)\w*",
    r"\bwhy\b",
    r"\bhow long (?:should|does|do|will)\b|\b(?:reasonable|normal|expected)\b[^.\n]{0,24}\b(?:time|speed)|\b(?:time|"
    r"speed)\b[^.\n]{0,24}"
    r"\b(?:reasonable|normal|expected)\b",
    r"\b(?:problem|trouble|bottleneck|imbalance\w*|uneven)\b",
    # figures that nobody names who is content with them
    r"\b[1-6]?\d ?% (?:gpu[- ]?)?utili[sz]ation\b|\butili[sz]ation (?:is |at |of |only |around )*[1-6]?\d ?%",
    r"\b\d+ ?(?:min(?:ute)?|hour|h)s? (?:an?|per|each|for (?:an?|one|each)) epoch\b",
)


def complains(text: Text) -> bool:
    """Whether the text says that something is wrong, though nothing in it fails."""
    return text.find(_COMPLAINT) is not None


def guess(text: Text, found: Iterable[str], *, complaint: bool = True) -> tuple[Finding, ...]:
    """Up to three causes that the text is likeliest about, none already found; severity info, confidence at most 0.3.

    Topics and the learned weights of single words are added up. Without a `complaint` found elsewhere the text must
    hold one itself, or its words must be those of a fault: where nothing is wrong nothing is guessed.
    """
    known = set(found)
    likely = weigh(text.flat)
    first = likely[0] if likely else Likelihood(HEALTHY, 0.0, ())
    if first.cause == HEALTHY and first.share >= _HEALTHY_SHARE:
        return ()
    faulty = first.cause != HEALTHY and first.share >= _FAULTY_SHARE
    if not complaint and not complains(text) and not faulty:
        return ()
    scores: dict[str, float] = {}
    hits: dict[str, list[Mention]] = {}
    for cause_id, joined in _TOPICS.items():
        mentions, score = _on_topic(text, joined)
        if score:
            scores[cause_id], hits[cause_id] = min(_TOPIC * score, _MOST_OF_A_TOPIC), mentions
    for one in likely:
        if one.cause != HEALTHY and one.share >= _LEAST_SHARE:
            scores[one.cause] = scores.get(one.cause, 0.0) + _WORDING * one.share
            mentions = [m for word in one.words[:6] if (m := text.find(words(rf"\b{re.escape(word)}"))) is not None]
            hits[one.cause] = [*hits.get(one.cause, []), *mentions]
    ranked = sorted((cause_id for cause_id in scores if cause_id not in known), key=lambda one: -scores[one])
    return tuple(
        Finding(
            id=cause_id,
            severity="info",
            confidence=round(_SUREST * min(scores[cause_id], 1.0), 3),
            evidence=tuple(dict.fromkeys(observe("topic", hit[0], hit.line.origin) for hit in hits[cause_id]))[:3],
        )
        for cause_id in ranked[:_MOST_CANDIDATES]
    )


def _on_topic(text: Text, joined: str) -> tuple[list[Mention], float]:
    """The words of a topic that the text holds, those that tell topics apart first; 0 when they are too few."""
    topic = joined.split(" ; ")
    found = [(hit, word) for word in topic if (hit := text.find(words(word.lstrip("~")))) is not None]
    weight = sum(_COMMON if word.startswith("~") else 1.0 for _, word in found)
    if weight < _LEAST:
        return [], 0.0
    found.sort(key=lambda row: row[1].startswith("~"))
    return [hit for hit, _ in found], weight + len(found) / len(topic)

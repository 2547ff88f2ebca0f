from tests.doctor.causes.judge import first, first_is, never, report_of

OLD = "RuntimeError: CUDA out of memory. Tried to allocate 512.00 MiB (GPU 0; 23.70 GiB total capacity; 21.02 GiB already allocated; 210.00 MiB free; 21.90 GiB reserved in total by PyTorch)"
NEW = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 79.15 GiB of which 900.00 MiB is free. Including non-PyTorch memory, this process has 78.20 GiB memory in use. Of the allocated memory 76.90 GiB is allocated by PyTorch, and 500.00 MiB is reserved by PyTorch but unallocated."
TAKEN = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 1 has a total capacty of 23.64 GiB of which 12.00 MiB is free. Process 4711 has 20.10 GiB memory in use. Including non-PyTorch memory, this process has 3.40 GiB memory in use. Of the allocated memory 3.00 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated."
LOOSE = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.77 GiB total capacity; 8.10 GiB already allocated; 1.10 GiB free; 13.60 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory"

BEYOND = "RuntimeError: CUDA out of memory. Tried to allocate 18.25 GiB (GPU 0; 15.77 GiB total capacity; 41.10 MiB already allocated; 14.90 GiB free; 66.00 MiB reserved in total by PyTorch)"
ASYNCHRONOUS = "RuntimeError: Allocation on device 2 would exceed allowed memory. (out of memory)\nCurrently allocated     : 2.50 GiB\nRequested               : 64.00 MiB\nDevice limit            : 11.00 GiB\nFree (according to CUDA): 8.00 GiB\nPyTorch limit (set by user-supplied memory fraction)\n                        : 2.54 GiB"


def test_the_first_advice_carries_a_number_when_the_batch_is_known():
    (finding, *_) = report_of("per_device_train_batch_size=16\n" + NEW).findings
    assert "Use micro batch 8 instead of 16" in finding.fix[0].say
    assert "accumulation over 2 steps" in finding.fix[0].say


def test_the_advice_goes_from_cheap_to_dear():
    said = " | ".join(r.say for r in report_of(NEW).findings[0].fix)
    order = ["icro batch", "ixed precision", "ctivation checkpointing", "llocator", "smaller width"]
    places = [said.index(words) for words in order]
    assert places == sorted(places)


test_the_kind_of_shortage_is_named_by_arithmetic_or_by_where_it_ran_out = first_is([
    ("oom_eval_without_no_grad", "GPU memory explodes in the validation loop; adding torch.no_grad() around it helped"),
    ("oom_variable_length_batch", "THCStorage.cu line=58 error=2 : out of memory\nstep 4120/9000 loss 2.31"),
    ("oom_eval_accumulates_predictions", "evaluate() keeps all_logits until the end and exceeds the GPU memory"),
    ("oom_capacity", OLD),
    ("oom_capacity", NEW),
    ("oom_capacity", "RuntimeError: MPS backend out of memory (MPS allocated: 17.2 GB, other allocations: 512 MB, max allowed: 18.13 GB). Tried to allocate 1.2 GB on private pool."),
    ("oom_capacity", "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 12.00 GiB. GPU 0 has a total capacity of 23.98 GiB of which 10.1 GiB is free."),
    ("oom_capacity", f"It happens in the validation loop, is torch.no_grad() missing?\n{BEYOND}"),
    ("oom_eval_without_no_grad", f"It happens in the validation loop, is torch.no_grad() missing?\n{OLD}"),
    ("oom_capacity", "torch.OutOfMemoryError: Allocation on device "),
    ("oom_capacity", "!!! Exception during processing !!! Allocation on device \nPrompt executed in 2 seconds"),
    ("oom_other_process", ASYNCHRONOUS.replace("8.00 GiB", "10.00 MiB").replace("2.54 GiB", "17179869184.00 GiB")),
    ("oom_other_process", TAKEN),
    ("oom_other_process", OLD.replace("21.02", "6.02").replace("21.90", "6.40")),
    ("oom_fragmentation", LOOSE),
    ("oom_optimizer_state", 'File "/venv/torch/optim/adamw.py", line 177, in step\n    self._init_group(\n  state["exp_avg_sq"] = torch.zeros_like(p)\n' + NEW),
    ("oom_eval_accumulates_predictions", "  File transformers/trainer.py, line 3500, in evaluation_loop\n    all_preds = nested_concat(all_preds, logits)\n" + NEW),
    ("oom_eval_without_no_grad", "Training runs for a whole epoch, then during validation:\n  File main.py, line 88, in validate\n    out = model(x)\n" + OLD),
    ("oom_variable_length_batch", "It trains fine and then crashes randomly after a few thousand iterations, sequences have very different lengths.\n" + NEW),
    ("oom_after_batch_size_finder", "Batch size 64 succeeded, trying batch size 128\nFinished batch size finder, will continue with full run using batch size 64\n" + OLD),
    ("oom_optimizer_state", 'Traceback (most recent call last):\n  File "fit.py", line 80, in fit\n    optim.step()\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.'),
    ("oom_optimizer_state", "with SGD it trains at batch size 8, with Adam it is out of memory on the GPU"),
    ("oom_eval_accumulates_predictions", "CUDA out of memory in evaluate(): the trainer aggregates all predictions on the card, 40000 samples with 5000 classes"),
    ("oom_eval_accumulates_predictions", '  File "loop.py", line 12, in evaluate\n    preds = torch.cat((preds, step_preds))\nRuntimeError: CUDA out of memory.'),
    ("oom_eval_accumulates_predictions", "CUDA out of memory in evaluation: the logits of all batches are appended to a list on the card"),
    ("oom_eval_without_no_grad", "\n".join(f"Test: [{i}0/900]  time: 0.05  max mem: {9000 + 40 * i}" for i in range(6)) + "\nRuntimeError: CUDA out of memory."),
    ("leak_graph_kept", "\n".join(f"Epoch: [0]  [{i}0/900]  loss: 0.4  max mem: {9000 + 40 * i}" for i in range(6)) + "\nRuntimeError: CUDA out of memory."),
    ("oom_variable_length_batch", "the GPU is out of memory after training on a few hundred samples of my dialogue dataset"),
    ("oom_variable_length_batch", "Epoch: [0]  [00/900]  loss: 0.4  max mem: 9000\nEpoch: [0]  [10/900]  loss: 0.4  max mem: 9000\nEpoch: [0]  [20/900]  loss: 0.4  max mem: 9000\nEpoch: [0]  [30/900]  loss: 0.4  max mem: 9000\nEpoch: [0]  [40/900]  loss: 0.4  max mem: 9000\nEpoch: [0]  [50/900]  loss: 0.4  max mem: 9000\nRuntimeError: CUDA out of memory."),  # a peak that stays is no growth
])  # fmt: skip
test_a_listing_of_the_loop_does_not_say_that_the_optimizer_ran_out = never([
    ("oom_optimizer_state", "my loop:\n    loss = net(x).mean()\n    loss.backward()\n    optimizer.step()\n\nRuntimeError: CUDA out of memory."),  # a listing of the loop does not say that the optimizer ran out
])  # fmt: skip


def test_the_word_for_a_killed_process_counts_only_at_the_end_of_a_line():
    assert first("loading 300000 images\nGetötet\n") == "host_oom_killed"
    assert first("run.sh: строка 3: 12345 Убито              python train.py\n") == "host_oom_killed"
    assert first("Matado el proceso anterior, empiezo de nuevo\nepoch 1 loss 0.3\n") != "host_oom_killed"


def test_a_request_larger_than_the_card_is_told_by_its_size():
    assert report_of(BEYOND).findings[0].title == "18.2 GiB were asked for at once, on a card of 15.8 GiB"


def test_a_process_that_holds_more_than_the_card_has_is_told_by_its_numbers():
    spilled = NEW.replace("79.15 GiB", "8.00 GiB").replace("900.00 MiB is free", "0 bytes is free")
    [finding] = [one for one in report_of(spilled).findings if one.id == "oom_capacity"]
    assert "76.9 GiB on a card of 8 GiB" in finding.title
    assert "on a card of" not in report_of(NEW).findings[0].title


def test_a_headline_with_one_figure_of_the_message_hides_none_of_its_others():
    message = (
        "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.76 GiB total capacity; 2.42 GiB already "
        "allocated; 26.12 MiB free; 2.75 GiB reserved in total by PyTorch)"
    )
    assert first(message) == "oom_other_process"
    assert first(f"cuda out of memory 10.76 GiB total capacity\n\n{message}") == "oom_other_process"


def test_a_limit_that_the_program_set_for_itself_is_the_title_and_segments_are_no_advice_for_that_allocator():
    finding = report_of(ASYNCHRONOUS).findings[0]
    assert (finding.id, finding.title) == ("oom_capacity", "The program limits itself to 2.54 GiB of the card's 11 GiB")
    bare = report_of("torch.OutOfMemoryError: Allocation on device ").findings[0]
    assert "expandable_segments" not in str(bare.fix)
    assert "expandable_segments" in str(report_of(NEW).findings[0].fix)


def test_memory_that_rises_all_the_time_is_kept_and_no_rare_batch():
    told = "After about two epochs training ends with CUDA out of memory."
    assert first(told) == "oom_variable_length_batch"
    rises = f"{told} The GPU memory increases slowly and steadily, from 4 GB to 11 GB."
    found = report_of(rises).findings
    assert found[0].id == "leak_graph_kept"
    assert "oom_variable_length_batch" not in {one.id for one in found}

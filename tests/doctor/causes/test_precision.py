"""Mixed precision gone wrong in the words of apex, of code and of logs."""

from tests.doctor.causes.judge import first_is, never

PAST = "My loss gets worse since I use mixed precision, my training loop:\nwith autocast():\n    loss = net(x)\nscaler.scale(loss).backward()\noptimizer.step()\nscaler.update()\n"
TWICE = "accuracy drops with this training code\nscaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()\noptimizer.step()\n"
RIGHT = "accuracy drops with this training code\nif half:\n    scaler.scale(loss).backward()\n    scaler.step(optimizer)\n    scaler.update()\nelse:\n    loss.backward()\n    optimizer.step()\n"
CLIPPED = "training does not converge with amp\nscaler.scale(loss).backward()\ntorch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)\nscaler.step(opt)\nscaler.update()\n"
test_precision_gone_wrong_is_named_by_its_kind = first_is([
    ("amp_scaler_misuse", PAST),
    ("amp_scaler_misuse", CLIPPED),
    ("amp_scaler_misuse", TWICE),
    ("amp_scaler_misuse", PAST.replace("scaler.scale(loss)", "loss").replace("optimizer.st", "scaler.st")),
    ("fp16_overflow_nan", "epoch 3 of training\n2024-01-01 train_loss nan\n2024-01-01 val_loss nan"),
    ("fp16_overflow_nan", "{'loss': 1.2, 'grad_norm': nan, 'learning_rate': 1e-05} after some training steps"),
    ("fp16_overflow_nan", "训练到一半 loss 突然变成 nan 了"),
    ("fp16_overflow_nan", "training of my detector: ValueError: matrix contains invalid numeric entries"),
    ("fp16_overflow_nan", "--fp16 True fine-tuning\n{'loss': 0.0, 'learning_rate': 2e-05, 'epoch': 0.1}\n{'loss': 0.0, 'learning_rate': 2e-05, 'epoch': 0.1}\n{'loss': 0.0, 'learning_rate': 2e-05, 'epoch': 0.1}"),  # losses of exactly zero under half precision are a sign
    ("fp16_overflow_nan", "FP16 training gives nan losses and the card does not support bfloat16. What can I do?"),
    ("fp16_overflow_nan", "scaler.unscale_(optimizer) in my training: there are NaN values in the gradients"),
    ("fp16_overflow_nan", "My training collapses to NaNs after 20k iterations"),
])  # fmt: skip
test_the_same_words_in_full_precision_or_in_right_code_name_nothing = never([
    ("amp_fp16_params_with_scaler", "RuntimeError: Found param encoder.weight with type torch.FloatTensor, expected torch.cuda.FloatTensor."),  # apex refusing a model on the cpu is something else
    ("amp_scaler_misuse", CLIPPED.replace("torch.nn", "scaler.unscale_(opt)\ntorch.nn")),
    ("amp_scaler_misuse", RIGHT),  # code that chooses between scaler and none is right
    ("amp_scaler_misuse", 'File "a.py", line 3, in step\n    scaler.step(optimizer)\n    loss.backward()\n    scaler.update()\n'),  # a line of a traceback is no loop
    ("amp_no_gradients", "training on the CPU\nRuntimeError: element 0 of tensors does not require grad and does not have a grad_fn"),  # a scaled loss without a graph has no gradients
    ("fp16_overflow_nan", "RuntimeError: bf16 is not supported on this GPU, fp16 works in training"),
    ("fp16_overflow_nan", "training in float32, train_loss nan from the start on"),  # a loss that is no number in full precision is another matter
    ("fp16_overflow_nan", "{'loss': 0.0, 'learning_rate': 2e-05, 'epoch': 0.1}\n{'loss': 0.0, 'learning_rate': 2e-05, 'epoch': 0.1}\n{'loss': 0.0, 'learning_rate': 2e-05, 'epoch': 0.1}"),  # losses of exactly zero under half precision are a sign
    ("fp16_overflow_nan", "The training images are all black and white"),  # black pictures alone are a matter of taste
    ("fp16_overflow_nan", "training in double precision, Loss: inf"),  # an infinite loss in full precision is another matter
])  # fmt: skip

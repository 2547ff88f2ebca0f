"""A tiny GPT-2 and the Trainer of Transformers."""

import tempfile

import torch
from parts import LASTS_S, PACE, threads
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments


class Tokens(Dataset):
    def __init__(self, length=100_000, width=64):
        self.length, self.width = length, width

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        tokens = torch.arange(index, index + self.width) % 500
        return {"input_ids": tokens, "labels": tokens}


class Stop(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        PACE.step()
        control.should_training_stop = PACE.time_is_up()


def run(dataset=None, callbacks=(), collator=None, layers=2, **options):
    threads()
    model = GPT2LMHeadModel(GPT2Config(vocab_size=500, n_positions=128, n_embd=128, n_layer=layers, n_head=4))
    settings = {
        "output_dir": tempfile.mkdtemp(), "per_device_train_batch_size": 8, "max_steps": 10_000_000,
        "logging_strategy": "no", "save_strategy": "no", "report_to": [], "use_cpu": True, "disable_tqdm": True,
        "dataloader_num_workers": 0, **options,
    }  # fmt: skip
    trainer = Trainer(
        model=model, args=TrainingArguments(**settings), train_dataset=dataset or Tokens(),
        data_collator=collator, callbacks=[Stop(), *callbacks],
    )  # fmt: skip
    trainer.train()


assert LASTS_S > 0

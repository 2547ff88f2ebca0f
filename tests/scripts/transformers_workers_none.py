"""Transformers' Trainer with a data set that tokenises in the main process."""

import re

import torch
from parts import ADVISED, FIXED
from transformers_parts import Tokens, run

TEXT = "It was the best of times, it was the worst of times; it was the age of wisdom. " * 30


class Texts(Tokens):
    def __getitem__(self, index):
        pieces = re.findall(r"\w+|[^\w\s]", TEXT[index % 50 :])
        ids = [sum(ord(c) * 31**i for i, c in enumerate(piece * 8)) % 500 for piece in pieces]
        tokens = torch.tensor((ids * 2)[:64])
        return {"input_ids": tokens, "labels": tokens}


run(Texts(), dataloader_num_workers=ADVISED if FIXED else 0, dataloader_persistent_workers=FIXED)

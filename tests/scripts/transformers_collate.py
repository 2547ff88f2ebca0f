"""Transformers' Trainer with a collator that masks token by token in Python."""

import random

import torch
from transformers_parts import run


def mask(samples):
    rows = []
    for sample in samples:
        row = []
        for token in sample["input_ids"].tolist():
            for _ in range(1500):
                draw = random.random()
            row.append(499 if draw < 0.15 else token)
        rows.append(row)
    tokens = torch.tensor(rows)
    return {"input_ids": tokens, "labels": tokens}


run(collator=mask)

"""Transformers' Trainer that saves after every step."""

from transformers_parts import run

run(save_strategy="steps", save_steps=1, save_total_limit=1, layers=1)

"""Transformers' Trainer that saves after every second step."""

from transformers_parts import run

run(save_strategy="steps", save_steps=2, save_total_limit=1)

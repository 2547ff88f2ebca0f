"""Transformers' Trainer, compute-bound."""

from transformers_parts import run

run(layers=4, logging_strategy="steps", logging_steps=50)

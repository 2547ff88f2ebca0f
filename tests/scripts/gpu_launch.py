"""Thirty tiny layers: the CPU cannot launch kernels as fast as the GPU runs them."""

from gpu_parts import train

train(hidden=64, batch=16, depth=30)

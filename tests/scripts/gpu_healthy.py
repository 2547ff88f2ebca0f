"""Large products: the GPU is the limit, and the host waits for it in .item()."""

from gpu_parts import train

train(hidden=8192, batch=8192, after_step=lambda step, model, loss: loss.item())

"""What the machine is. The only code that touches NVML, /proc, /sys, nvidia-smi and other processes."""

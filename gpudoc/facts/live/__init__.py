"""Watching a job that runs: stacks by py-spy, processes by /proc, devices by NVML. The doors are in `session`."""

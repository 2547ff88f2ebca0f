"""Watches a running job: stacks by py-spy, processes by /proc, devices by NVML. The entry points are in `session`."""

"""Measures the time of every step by phase: host clocks, events of the device, compilations, waits for other ranks."""

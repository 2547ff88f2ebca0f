"""Where the time of a step goes, always on: host clocks, events of the device, compilations, waits for other ranks."""

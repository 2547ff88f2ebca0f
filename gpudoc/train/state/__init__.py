"""The state of a run at a step boundary: copied to the host, written whole, read back."""

"""Everything a run is at a step boundary: copied to the host, written whole, read back."""

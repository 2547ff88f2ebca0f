"""Which settings are best: the largest batch proved from both sides, the fastest, and the loader that keeps up."""

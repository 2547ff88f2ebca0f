"""The parent's decisions: the next trial, its allowed cost, and the consequence of its answer."""

"""gpudoc: why training on a GPU does not start, runs out of memory or is slow, and what to type."""

__version__ = "0.1.0"

"""The order of samples, and how they are read: the same order for any number of workers and ranks."""

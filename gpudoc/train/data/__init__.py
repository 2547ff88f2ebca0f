"""Which sample comes when, and how it is read: the same order for any number of workers and ranks."""

"""Watches a run from outside its steps, and reports when it makes no progress."""

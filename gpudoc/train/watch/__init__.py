"""Who watches a run from outside of its steps, and what is said where nothing moves."""

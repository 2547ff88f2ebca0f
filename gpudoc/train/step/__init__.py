"""The loop and one step of it: forward, backward, update, and what happens between two steps."""

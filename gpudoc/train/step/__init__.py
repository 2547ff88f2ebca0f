"""One step: forward, backward, check, clip, update; its parts, and how it is undone."""

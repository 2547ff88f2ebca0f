"""A journal as a quiet machine would have left it: what others disturbed is measured anew."""

import json


def quieten(path):
    """Forget what others did beside the trials of the journal at `path`."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for told in lines[1:]:
        for name in ("other_cpus", "busy_share", "stolen_share"):
            told.get("measured", {}).pop(name, None)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))

"""Step after step, and what comes between two: samples, log points, evaluations, checkpoints, rescue."""

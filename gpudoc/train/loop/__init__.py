"""The loop over steps, and the work between them: samples, log points, evaluations, checkpoints, rescue."""

"""The trainer: settings, the loop as a stream of events, exact resume, checkpoints, rescue, and the time split."""

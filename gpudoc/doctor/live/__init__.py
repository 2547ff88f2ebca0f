"""The meaning of a running job's samples: phases of a step, shares of time, and the gain of a fix."""

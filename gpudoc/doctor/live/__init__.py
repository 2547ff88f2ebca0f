"""What the samples of a running job mean: phases of a step, shares of time, and what a fix would gain."""

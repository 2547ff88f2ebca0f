"""The smallest change to a training script that helps, proved before it is offered."""

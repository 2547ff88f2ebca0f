"""Any training script, as it is: looked at, tuned and run without a change to its code."""

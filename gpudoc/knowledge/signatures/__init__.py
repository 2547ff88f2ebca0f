"""What programs print when something is wrong: one row per message, in a file per family."""

"""The code that runs inside a trial's process."""

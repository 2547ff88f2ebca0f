"""What runs inside a trial's process."""

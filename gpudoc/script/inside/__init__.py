"""What runs in a script's own process; this folder stands first on its PYTHONPATH."""

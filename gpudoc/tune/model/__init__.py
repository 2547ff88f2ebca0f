"""Memory, speed, loading and scaling as functions of the settings; pure, no process and no clock."""

"""Before the first step: device, profile, settings and model put together, and where the ranks run."""

"""Before the first step: combines device, profile, settings and model, and decides where the ranks run."""

"""The reports of a run: metrics, summary, and the advice at the end."""

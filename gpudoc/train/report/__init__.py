"""What a run says of itself: metrics, summary, and the advice at the end."""

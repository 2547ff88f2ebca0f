"""What each cause is called, means and does, how it is mended and who says so: one row per cause, by family."""

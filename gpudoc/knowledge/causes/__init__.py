"""The causes: what each is called, means and does, how it is mended and who says so; a file per family."""

"""What the steps run, each file as a program that prints a `Result` as its last line."""

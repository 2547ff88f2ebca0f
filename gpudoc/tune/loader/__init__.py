"""The DataLoader settings that keep a step fed: measured in a separate process, and explained."""

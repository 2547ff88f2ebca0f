"""The DataLoader settings that keep a step fed: asked, measured in a separate process, and explained."""

"""The DataLoader settings that keep a step fed: asked, measured in a process of their own, and explained."""

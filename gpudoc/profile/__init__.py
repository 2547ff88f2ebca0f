"""What was learned: profiles and presets, where they are kept, and which one fits."""

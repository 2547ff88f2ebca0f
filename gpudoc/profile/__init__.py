"""Profiles and presets: what they contain, where they are kept, and which one fits."""

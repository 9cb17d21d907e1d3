"""Published experiments: what they reported, what models say, and what was measured here, side by side."""

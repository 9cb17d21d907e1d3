"""Published experiments: published values, model values and our measurements side by side."""

"""Experiment files: the models of their tables, reading them, and what is wrong in them, line by line."""

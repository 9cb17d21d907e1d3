"""Experiment files: the models of their tables, how they are read, and their mistakes, line by line."""

"""Rows, statistics, figures and pages: the evaluation of a run, which needs no hosts."""

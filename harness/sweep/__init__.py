"""Sweeps: an experiment becomes trials, each trial is run and judged, and a run folder keeps the results."""

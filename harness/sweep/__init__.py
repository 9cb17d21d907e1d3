"""Sweeps: an experiment becomes trials, each is run and judged, and a run folder keeps what was found."""

"""One algorithm a file: each builds a `Schedule` from a topology."""

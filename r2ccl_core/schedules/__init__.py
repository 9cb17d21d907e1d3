"""One algorithm per file: each builds a `Schedule` from a topology."""

"""What everything else speaks of: a cluster and its health, a collective, a schedule. Values, and their files."""

"""What this host is to a rank: its NICs, its variables, its memory, its processes."""

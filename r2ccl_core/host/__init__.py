"""What a rank knows of its own host: NICs, environment variables, memory, processes."""

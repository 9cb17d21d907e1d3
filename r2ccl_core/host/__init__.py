"""What a rank knows about its own host: NICs, environment variables, memory, processes."""

"""The `Communicator` and what it is made of: connections, programs, and the watch over NICs."""

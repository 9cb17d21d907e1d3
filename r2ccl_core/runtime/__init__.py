"""The `Communicator` and its parts: connections, programs, and the monitoring of NICs."""

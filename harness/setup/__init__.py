"""Set-up: turns the bare hosts of an inventory into hosts that a sweep can use."""

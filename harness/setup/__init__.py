"""Set-up: from hosts of an inventory with nothing on them to hosts that a sweep can use."""

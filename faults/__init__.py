"""Network faults as values: a target goes in, commands to inject and to heal come out."""

"""Which schedule a collective runs: bounds, predictions, the simulator, the proof, and the choice."""

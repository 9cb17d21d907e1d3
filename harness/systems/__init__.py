"""Systems under test: what an experiment can name, and the proof that the intended network was used."""

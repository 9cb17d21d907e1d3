"""Stages of the set-up, one per file; `harness.setup.stages.catalogue` lists them in their order."""

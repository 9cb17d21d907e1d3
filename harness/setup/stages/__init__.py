"""Stages of the set-up, one a file; `harness.setup.stages.catalogue` lists them in their order."""

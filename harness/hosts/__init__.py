"""Hosts: what the harness can do on a machine, through one agent over one SSH session."""

"""Hosts: the harness's operations on a machine, through one agent over one SSH session."""

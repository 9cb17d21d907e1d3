"""Checks: what is found out about a set of hosts (evidence), and what that means (findings), a topic a file."""

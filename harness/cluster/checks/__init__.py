"""Checks of a set of hosts: facts about them (evidence), and conclusions from these (findings), one topic per file."""

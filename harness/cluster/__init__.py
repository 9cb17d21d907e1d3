"""Clusters: how a set of hosts comes up, is described, goes down, and is cleaned up after a crash."""

"""CloudLab: turns a manifest into an inventory, and holds the profile that creates the testbed."""

"""CloudLab: from a manifest to an inventory, and the profile that makes the testbed."""

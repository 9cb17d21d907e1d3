"""The control plane of a group: how ranks meet, agree on schedules, and continue when their streams break."""

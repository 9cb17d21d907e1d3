"""A group's control plane: how ranks meet, agree, and go on when their streams break."""

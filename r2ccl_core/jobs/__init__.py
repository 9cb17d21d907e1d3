"""Jobs on a topology: a training iteration, a serving replica, and what failures over time cost them. Pure."""

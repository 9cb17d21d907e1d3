"""Jobs on a topology: a training iteration, a serving replica, and the cost of failures over time. Pure."""

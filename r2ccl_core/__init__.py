"""Resilient collectives: topology, schedules, bounds, planner, simulator, and the runtime that moves bytes."""

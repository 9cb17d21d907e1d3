"""Figures: one module each, `draw(frame)` makes a matplotlib Figure, `caption(frame)` says what it shows.

Importing one takes seconds (matplotlib, seaborn, pandas), so only the report step does.
"""

"""Figures, one module each: `draw(frame)` makes a Matplotlib Figure, `caption(frame)` describes it.

Importing one takes seconds (Matplotlib, seaborn, pandas), so only the report step does.
"""

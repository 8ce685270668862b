"""Worst-case mathematics on dense networks."""

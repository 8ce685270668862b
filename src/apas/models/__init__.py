"""Models whose parameters can be shifted."""

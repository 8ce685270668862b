"""Sets of model shifts."""

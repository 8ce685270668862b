"""Searches for the shift with the least margin."""

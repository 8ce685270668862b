"""The largest shift at which each row is certified."""

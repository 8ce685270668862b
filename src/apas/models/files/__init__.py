"""Model files, one format per file."""

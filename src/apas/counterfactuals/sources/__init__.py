"""Where candidates come from, one source per file."""

"""Ways to decide a claim, one per file."""

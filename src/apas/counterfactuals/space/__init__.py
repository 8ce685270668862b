"""Which rows are allowed, in raw units, and how a model sees them."""

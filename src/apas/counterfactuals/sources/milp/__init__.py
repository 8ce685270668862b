"""The cheapest allowed change of an input that a piecewise linear network answers with a wanted margin."""

"""Shares of valid shifts by halving the box of shifts (Algorithm 3 of the paper)."""

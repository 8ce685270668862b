"""The loop that searches, tests and certifies candidates."""

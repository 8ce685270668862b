"""Speed against written-down baselines; run with `python -m benchmarks`."""

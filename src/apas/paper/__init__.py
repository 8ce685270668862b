"""The paper's experiments, its data, and the demo's bank: imported by the command line and by lazy names alone."""

"""The paper's experiments, its data, and the demo's bank: nothing else imports this."""

"""Certificates: questions, claims, verdicts, evidence, and the methods that find it."""

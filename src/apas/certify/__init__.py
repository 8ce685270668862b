"""Certificates: claims, verdicts, evidence, and the methods that find it."""

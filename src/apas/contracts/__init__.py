"""Certificates as files and promises."""

"""What results look like: tables, progress, plots. Imports nothing of ours but other leaves."""

"""Worst cases over L_p balls of parameters."""

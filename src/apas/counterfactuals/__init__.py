"""Counterfactual explanations: what may change, where candidates come from, and the loop that certifies them."""

"""Rows of which any entry may be missing: accelerated EM, a pass an iteration."""

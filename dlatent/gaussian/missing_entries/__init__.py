"""Rows of which any entry may be missing: a matrix for each row, or for each of few patterns."""

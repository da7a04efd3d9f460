"""Matrices known by what they do."""

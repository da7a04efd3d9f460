"""Locally linear embedding: neighbours, weights, smallest eigenvectors."""

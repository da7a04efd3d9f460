"""Probabilistic latent-variable models for data larger than memory."""

"""What `fit` returns, `save` writes and `transform` reads: fitted models as values."""

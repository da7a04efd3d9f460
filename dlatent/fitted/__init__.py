"""Fitted models as values: `fit` returns them, `save` writes them, `transform` reads them."""

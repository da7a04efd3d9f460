"""The public models, the only place where stores, engine and fitting meet."""

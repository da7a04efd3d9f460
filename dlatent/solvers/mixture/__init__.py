"""Mixtures, by EM over rows whose component is not known."""

"""The strength of smoothing over a graph."""

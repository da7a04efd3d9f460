"""The demonstration: real data that every machine has, from sources to a fitted model."""

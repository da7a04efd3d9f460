"""The demonstration: invented papers, then real data that every machine has, from sources to a fitted model."""

"""The cases: what is measured, on which data, and what it must show."""

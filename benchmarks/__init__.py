"""Benchmarks that anyone can repeat: `python -m benchmarks list | run CASE | report FILES` (see docs/benchmarks.md)."""

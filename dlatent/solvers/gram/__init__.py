"""From inner products of samples."""

"""Features that a kernel makes."""

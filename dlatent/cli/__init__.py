"""The command line: parse, call the library, show what it says; no logic."""

"""Backends: one file format per file, named as the user types it after -b."""

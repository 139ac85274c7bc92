"""Synthesizers: one method per file, named as the user types it after -s."""

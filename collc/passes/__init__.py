"""Passes: one rewrite per file; each takes a schedule and returns another."""

"""Checkers: one claim per file. They share no code with what they check."""

"""Run files and what they are worth."""

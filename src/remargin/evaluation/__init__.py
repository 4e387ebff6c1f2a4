"""Run files, measures, and significance tests."""

"""Negatives for training triplets."""

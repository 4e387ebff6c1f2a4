"""Losses over query, positive and negative embeddings: tensors in, a scalar out."""

"""What tests of teachers share with those of training."""

from ..training.conftest import beir, model, prepared, random_batches, settings, silent

__all__ = ["beir", "model", "prepared", "random_batches", "settings", "silent"]

"""Published checkpoints that are not one plain encoder: one module for each layout, and `base.py` for what they are."""

"""Beyond the paper: which recipe `fit` should have, on several collections, at home and away."""

"""Every way that data comes in: collections, pairs, triplets, and the token store that training reads."""

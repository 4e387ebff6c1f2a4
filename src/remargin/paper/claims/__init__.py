"""What the paper claims about its results, each claim as a predicate."""

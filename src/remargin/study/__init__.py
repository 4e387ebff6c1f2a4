"""Studies: the training runs that experiments declare are trained once, measured, and remembered."""

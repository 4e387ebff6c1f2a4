"""Training on several devices: one process for each, which all see the loss of the whole batch."""

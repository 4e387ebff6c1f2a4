"""Learning from a stream: lines come in, are kept in a journal, and are trained on as they come."""

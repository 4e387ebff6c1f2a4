"""Ways to find documents: BM25, exact dense search, re-ranking."""

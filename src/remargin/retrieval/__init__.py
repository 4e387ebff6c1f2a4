"""Ways to find documents: BM25, dense search (exact, FAISS, Milvus), re-ranking, and fusion of runs."""

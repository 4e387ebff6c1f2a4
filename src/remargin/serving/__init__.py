"""Serving: search and embeddings over HTTP, and a page to try them."""

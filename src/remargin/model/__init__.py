"""Text to vectors: tokenizers, encoders, their folders, and the engine that computes them."""

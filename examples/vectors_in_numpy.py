"""Encode texts, and search them with one matrix product.

The vectors of an encoder that compares by cosine have length 1, so the product of two of them is their similarity. For
thousands of documents this is all that search takes; an index is for more, and for keeping them.
"""

import numpy as np

from remargin import BiEncoder

MODEL = "minilm"

documents = [
    "The library is open from nine to five, and closed on Mondays.",
    "Books can be borrowed for four weeks, and longer if nobody waits for them.",
    "A lost card costs five euros.",
    "The reading room has forty seats, and no telephones.",
]
queries = ["how long may I keep a book?", "when do you open?"]

model = BiEncoder.from_pretrained(MODEL)  # or runs/faq/model, or a Hugging Face name
document_vectors, query_vectors = model.encode_documents(documents), model.encode_queries(queries)
print(f"{len(documents)} documents, {document_vectors.shape[1]} dimensions, {document_vectors.dtype}")

similarities = query_vectors @ document_vectors.T
for query, row in zip(queries, similarities, strict=True):
    best = int(np.argmax(row))
    print(f"{query} -> {documents[best]} ({row[best]:.3f})")

# The same model for sentence-transformers, and for all that builds on it.
model.save("my-retriever")

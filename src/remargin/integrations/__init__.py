"""What connects remargin with other tools: the Hugging Face hub, ONNX Runtime, and databases that load Parquet."""

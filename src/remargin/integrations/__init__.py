"""What connects remargin with other tools: their trainers and evaluations, the hub, ONNX Runtime, databases."""

"""Cross-encoders and encoders as teachers: training them, their scores."""

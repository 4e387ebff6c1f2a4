"""Fine-tuning: the loop, its batches, optimiser, validation and checkpoints."""

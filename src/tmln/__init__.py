"""tmln trains a PyTorch model on one task after another without forgetting, and measures how well that went."""

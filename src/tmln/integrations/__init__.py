"""Integrations with Lightning, Hugging Face Transformers and Avalanche, imported on demand."""

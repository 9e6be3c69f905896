"""Drop-in for frameworks: Lightning, Hugging Face's, Avalanche, Fabric and Accelerate, each imported on demand."""

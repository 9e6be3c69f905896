"""Drop-in for frameworks: Lightning, Hugging Face's transformers, Fabric and Accelerate, each imported on demand."""

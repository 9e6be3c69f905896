"""A model on disk that keeps learning from your own data: one state file, task after task."""

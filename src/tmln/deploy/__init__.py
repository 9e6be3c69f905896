"""A model on disk that keeps learning from data of one's own: one state file, lesson after lesson."""

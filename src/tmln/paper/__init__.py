"""The paper's tables and figures from runs, beside the printed numbers."""

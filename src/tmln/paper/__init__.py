"""The paper's tables and figures from runs, beside what it prints: each is a list of runs and a renderer."""

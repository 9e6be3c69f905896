"""Inject faults by the hundred, and check what became of the runs.

``make torture`` runs it; ``docs/reliability.md`` says what is done, what counts as lost, different and unclear, and
what was found.
"""

"""The torture: faults put in on purpose, by the hundred, and what became of the runs they hit.

``make torture`` runs it; ``docs/reliability.md`` says what is done, what counts as lost, different and unclear, and
what was found.
"""

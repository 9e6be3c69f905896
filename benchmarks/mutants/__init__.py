"""A mutation test: small faults are put into the source one at a time, and the tests have to notice each of them.

``make mutants`` runs it; ``docs/reliability.md`` says what is changed, what is left alone and what the figures mean.
"""

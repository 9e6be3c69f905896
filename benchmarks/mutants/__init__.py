"""Test the tests by mutation: put small faults into the source one at a time, each of which tests must notice.

``make mutants`` runs it; ``docs/reliability.md`` says what is changed, what is left alone and what the figures mean.
"""

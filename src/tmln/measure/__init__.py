"""What must be trained or evaluated again: overheads, recorded weights, landscapes, barriers."""

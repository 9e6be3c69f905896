"""Process groups, sharded weights and synchronised batch normalisation."""

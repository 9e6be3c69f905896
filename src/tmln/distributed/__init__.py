"""Process groups, data-parallel training, sharded weights and synchronised batch normalisation."""

"""Measurements that train or evaluate again: overhead, landscapes, barriers, verification."""

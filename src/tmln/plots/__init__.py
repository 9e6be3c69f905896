"""Figures drawn with matplotlib, which only this package imports."""

"""Figures: what was found, drawn with matplotlib, which is imported only here."""

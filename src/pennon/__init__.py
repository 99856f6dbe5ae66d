"""Pennon: an open server for Lance tables."""

__version__ = "0.1.0"

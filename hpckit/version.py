"""The version of hpckit."""

__version__ = "0.1.0"

"""Nodes with broken hardware: what logs say of them, and what is remembered."""

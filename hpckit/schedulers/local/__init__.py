"""This machine: a controller of ours runs the same scripts."""

"""Gives the tests of this folder a real Slurm."""

from tests.slurmbox.fixture import slurm

__all__ = ["slurm"]

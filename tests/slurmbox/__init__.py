"""A real Slurm with two nodes of four fake GPUs each, on this one machine."""

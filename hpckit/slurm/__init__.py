"""What Slurm says, as values: argv in, values out; every parser is a pure function of text."""

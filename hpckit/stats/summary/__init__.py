"""What a job's GPUs, cores and memory did, in figures: pure functions of samples."""

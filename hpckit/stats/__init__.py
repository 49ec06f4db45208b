"""What the GPUs, cores and memory of a job did: the sampler, its files, and what reads them."""

"""The records of one node of one job: what the sampler writes and the summary reads."""

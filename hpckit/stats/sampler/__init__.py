"""The sampler: a process beside a job on each node. `nvml` is the only module that knows NVML."""

"""The sampler: a process beside a job on each node. `nvml` alone knows NVML, `amd_smi` AMD SMI."""

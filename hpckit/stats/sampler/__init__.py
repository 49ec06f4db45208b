"""The sampler: a process beside a job on each node. `nvml` alone knows NVML, `amd_smi` AMD SMI.

- `start` starts it, `process` is it, `schedule` says when it reads, `writer` writes.
- GPUs: `gpu_library` is what a vendor's library must do, `job_gpus` which GPUs are the job's,
  `gpuset` reads them with a deadline, `gpu_reader` one of them.
- The node: `node`, by `cgroup`, or by `procfs` where there is none.
"""

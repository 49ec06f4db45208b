"""From a worked-out job to a run; what became of runs; and what the processes of a job do.

- To submit, all or nothing: `model`, `submit` with `tasks`, `folders`, `record`, `handover`;
  `lost_jobs` finds jobs that Slurm took without an answer. `after` with `awaited`, `resubmitted`,
  `task_numbers`, `used_before`, `leaving_out` are about what a submission refers to.
- The code that goes along: `code_plan`, `kept_code`, `code_notes`; `needed_code` (what may go).
- What became of runs: `states` asks squeue, then sacct, then reads the ranks' records. `verdict`
  weighs them: COMPLETED needs every rank's own good end, and unknown is never "finished": without
  Slurm's word a run is over only when every rank of its newest attempt has written its end. While
  squeue is silent, the end of an attempt is not the end of a job that may start again. `status` is
  what is known of one run, `chain` which of its jobs tells it. `waiting` waits for runs.
- What goes: `cleaning` (old runs), `leftovers` (of killed commands).
- In the job, a supervisor: `in_job` is the name that scripts know, `job_process` its beginning and
  end, `payload` what submitit pickles. Slurm's warning: `warned`, by the process that is
  `deciding`, with `checkpoints`, `kept_signal`, `no_requeue`.
- In the job, where another may follow: `follow_up` takes the script's place, with `watched`,
  `retried` (`retry`, `called_off`) and `chained`; `container_step` ends the container's step.
"""

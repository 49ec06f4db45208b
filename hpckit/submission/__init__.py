"""From a worked-out job to a run; what became of runs; and what the processes of a job do."""

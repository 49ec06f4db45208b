"""Telling people what becomes of a job, from inside it: one process beside the job script.

`event` (what is told, and its forms), `sending` (to one sink), `outbox` (to all, each in a thread),
`claims` (each event once), `watching` (errors and ends), `idling` (GPUs), `in_job` (the process).
`told` is for scripts whose place a supervisor takes. Only this process reads secrets, from the
user's own file (`hpckit.sinks`).
"""

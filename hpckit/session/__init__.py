"""Sessions: a shell or a notebook as a job, which its user reaches, leaves and finds again.

In the job runs `host`: it starts what is `served`, ends it when it is idle, and keeps in the run's
`folder` what a client needs to reach it. No port is open without a secret.
"""

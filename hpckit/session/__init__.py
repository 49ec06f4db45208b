"""Sessions: a shell or a notebook as a job, which its user reaches, leaves and finds again.

In the job runs `host`: it starts what is `served`, ends it when it is idle, and keeps in the run's
`folder` what a client needs to reach it. No port is open without a secret.

- Idle or not: `idle` (the rules, pure), `activity` (what samples say). `notes` is for status.
- Shell: `terminal` outlives its client; `link` is one client, `frames` the protocol, `screen` what
  a returning client sees, `shells` how bash, zsh and fish start. `attach` is the client.
- Notebook: `notebook` starts Jupyter, `connection` is its address and token. `forward` brings its
  port here, by ssh or over a `stream` whose far end is `pipe`.
- ssh: `ssh_config` (entries), `own_sshd` (an sshd for one connection).
- `step` is how any client gets to the node.
"""

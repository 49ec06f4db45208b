"""How long a test waits for what a machine does at once when it has nothing else to do."""

# A limit is for what never ends: it costs nothing when met. On two cores with other work a start of
# Slurm's daemons, of torch or of pip has taken over a minute; a test has 600 s (pyproject.toml).
LONG_S = 240

"""The only place that knows submitit: executors, local backend, states, cancel."""

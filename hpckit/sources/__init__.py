"""The site's own monitoring, asked about a job: today Prometheus, by the names of three exporters.

`client` asks, with bounded patience; `schemes` is whose series are called what, and in which units;
`series` makes samples of series, as hpckit's own sampler has them, so that all figures are made in
one place; `ask` is one job's answer. What is asked of a server is PromQL of our own making; what it
answers is a stranger's text.
"""

"""The site's own monitoring, asked about a job: today Prometheus, by the names of three exporters.

`client` asks, with bounded patience; `schemes` is whose series are called what, and in which units;
`questions` are the texts, PromQL of our own making; `series` makes samples of series, as hpckit's
own sampler has them, so that all figures are made in one place; `ask` is one job's answer. `survey`
says what a server has. What a server answers is a stranger's text.
"""

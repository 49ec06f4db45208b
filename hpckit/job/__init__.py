"""The plan: request + site + workload -> numbers and argv. All arithmetic is here; nothing is run.

`request.py` is what was asked, `model.py` what comes out, `make.py` the way from one to the other,
`checks.py` what refuses the impossible, each refusal with its off switch.
"""

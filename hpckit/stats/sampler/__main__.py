"""The door of the sampler's process, `python -m hpckit.stats.sampler`: see `process`.

It starts while the ranks of its node do, and may share their cores.
"""

if __name__ == "__main__":
    from hpckit.stand_ins import run_program

    run_program("hpckit.stats.sampler.process")

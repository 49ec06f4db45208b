"""The door of the sampler's process, `python -m hpckit.stats.sampler`: see `process`.

It starts while the ranks of its node do, and may share their cores.
"""

if __name__ == "__main__":
    import gc

    # What is imported is no garbage: to look at it again and again takes time.
    gc.disable()

    from hpckit.stand_ins import UNUSED_IN_JOBS, stand_ins

    with stand_ins(*UNUSED_IN_JOBS):
        from hpckit.stats.sampler.process import main
    gc.freeze()
    gc.enable()
    main()

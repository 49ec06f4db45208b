"""The door of the process that writes a run's summary at the job's end: see `at_end`.

Each job waits for it.
"""

if __name__ == "__main__":
    import gc

    # What is imported is no garbage: to look at it again and again takes time.
    gc.disable()

    from hpckit.stand_ins import UNUSED_IN_JOBS, stand_ins

    with stand_ins(*UNUSED_IN_JOBS):
        from hpckit.report.at_end import main
    gc.freeze()
    gc.enable()
    main()

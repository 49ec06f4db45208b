"""The door that job scripts and pickles know: `python -m hpckit.submission.in_job FOLDER`.

Both outlive an update of hpckit, so the names here stay. What a job runs is in `payload`, how its
process begins and ends in `job_process`.
"""

if __name__ == "__main__":
    import gc
    import os
    import sys

    # What is imported is no garbage: to look at it again and again takes a tenth of the start.
    gc.disable()

    from hpckit.payload.bundle import VARIABLE, use_bundle

    # Before all that may be in the one file.
    os.environ[VARIABLE] = sys.argv[1]
    use_bundle(sys.argv[1])

    from hpckit.stand_ins import UNUSED_IN_JOBS, stand_ins

    with stand_ins(*UNUSED_IN_JOBS):
        from hpckit.submission.job_process import main
    main()
else:
    from hpckit.submission.payload import GoesOnError, Payload, ScriptFailedError

    __all__ = ["GoesOnError", "Payload", "ScriptFailedError"]

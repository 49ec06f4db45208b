"""The door of the process that writes a run's summary at the job's end: see `at_end`.

Each job waits for it.
"""

if __name__ == "__main__":
    from hpckit.stand_ins import run_program

    run_program("hpckit.report.at_end")

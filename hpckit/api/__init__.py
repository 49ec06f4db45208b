"""What Python programs, notebooks and the command line call; `hpckit` has its names.

Nothing in here prints: what a user should know comes back as values, or goes to the logger
`hpckit`, which is silent unless its program wants to hear it. Nothing changes the folder.
"""


def log(text: str) -> None:
    """Tell the logger `hpckit` what nobody asked for; silent unless the program listens."""
    import logging  # noqa: PLC0415  # seldom

    logger = logging.getLogger("hpckit")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    logger.info(text)

"""The oldest Python and torch that hpckit.parallel and hpckit.inference run with, in jobs.

Any Python 3 can read this module, `hpckit` and `hpckit.parallel`: the user of an older one gets the
line below, and not an error of Python's.
"""

LEAST = {"Python": (3, 10), "torch": (2, 1)}


def is_older(what: str, version: str) -> bool:
    """Say whether a version of Python or torch is too old; of an odd one, such as `git`, no.

    Args:
        what: a key of `LEAST`.
        version: as `sys.version` and `torch.__version__` begin: 3.9.18, 2.1.0a0+32f93b1.
    """
    numbers = version.split(".")[:2]
    known = len(numbers) == 2 and all(number.isdigit() for number in numbers)
    return known and tuple(map(int, numbers)) < LEAST[what]


def refuse_older(what: str, version: str) -> None:
    """Refuse such a version.

    Raises:
        ImportError: it is too old.
    """
    if is_older(what, version):
        raise ImportError(
            "{} {} is older than {}.{}, which hpckit.parallel needs: load a newer module, or "
            "choose another environment (hpckit submit --env ...)".format(
                what, version, *LEAST[what]
            )
        )

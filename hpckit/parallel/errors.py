"""The one error that a user can mend."""


class SetupError(ValueError):
    """Something given to the script or missing around it; the message is one line."""

"""The one error that a user can fix."""


class SetupError(ValueError):
    """Something given to the script or missing around it; the message is one line."""

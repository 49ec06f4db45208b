"""What is known of the sets that have a name: the SHA-256 of their content.

It is that of the decompressed files or, for tables, of the numbers, so that it does not matter how
they are packed.
"""

import hashlib

from hpckit.parallel.errors import SetupError

_SHA256 = {
    "fashion-mnist train-images-idx3-ubyte": (
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"
    ),
    "fashion-mnist train-labels-idx1-ubyte": (
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"
    ),
    "fashion-mnist t10k-images-idx3-ubyte": (
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"
    ),
    "fashion-mnist t10k-labels-idx1-ubyte": (
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"
    ),
    "mnist-5k": "1b845fda528288bf79346626fdf2fff6549f0170890dc9174bc1ef609807bbfa",
    "digits": "68aea062d35a127749050fa0e52dca09d6569ac08092c925610e0954e172dde2",
}


class NotInstalledError(SetupError):
    """A set with a name is not on this machine."""


def check(name: str, content: bytes | memoryview, place: str) -> None:
    """Compare the content of a file with what a known set has there.

    Raises:
        SetupError: it is something else.
    """
    found, known = hashlib.sha256(content).hexdigest(), _SHA256[name]
    if found != known:
        raise SetupError(
            f"{place} does not contain the known {name.split()[0]}: the SHA-256 of its content is "
            f"{found[:16]}..., not {known[:16]}...: install it again, or take it as it is with "
            "--no-verify (verify=False)"
        )


def checked(verify: bool) -> str:
    """Return for the description of a known set whether it was compared."""
    return "SHA-256 as known" if verify else "SHA-256 not compared"

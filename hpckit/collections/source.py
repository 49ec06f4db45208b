"""Where a collection comes from, a folder or a git repository, and where a fetched one is kept.

What stands here ends up as arguments of git, and in a lock file that others commit: only known
schemes are taken, nothing that git or ssh could read as an option, and no passwords.
"""

import re
from pathlib import Path
from urllib.parse import unquote

from hpckit.collections.collection import sha256
from hpckit.errors import RequestError
from hpckit.frozen import frozen
from hpckit.paths import is_there, typed_path

_SCHEMES = ("https", "ssh", "file")
_AUTHORITY = r"(?:[A-Za-z0-9][\w.~+-]*@)?(?:[A-Za-z0-9][A-Za-z0-9.-]*|\[[\da-fA-F:]+\])(?::\d+)?"
_HOST = r"[A-Za-z0-9][A-Za-z0-9.-]*"
_REV = r"(?a)[A-Za-z0-9][\w./+-]*"
_HEXADECIMAL = r"[0-9a-fA-F]+"
_LONGEST = 200
_SCP = r"[\w.-]+@[\w.-]+:"
_KNOWN = "a folder, git+https://HOST/PATH@REV, git+ssh://HOST/PATH@REV or git+file:///PATH@REV"


@frozen(kw_only=True)
class Source:
    """A folder's absolute path, or a git URL (`https`, `ssh`, `file`) and what is asked of it."""

    is_git: bool
    location: str
    rev: str | None = None

    def __str__(self) -> str:
        return f"git+{self.location}" if self.is_git else self.location

    @property
    def folder(self) -> Path | None:
        """The folder on this machine: the collection's, or a repository's; None elsewhere."""
        if not self.is_git:
            return Path(self.location)
        return Path(unquote(self.location[7:])) if self.location.startswith("file:") else None


def parse_source(word: str) -> Source:
    """Read a source as users write it and as lock files record it.

    Raises:
        RequestError: an unknown scheme, or what git could take for something else than a place.
    """
    if any(not character.isprintable() for character in word):
        raise RequestError(f"Source {word!r} contains a control character.")
    bare = word.removeprefix("git+")
    if re.match(_SCP, bare) and "://" not in word and not is_there(Path(word)):
        host, _, path = bare.partition(":")
        raise RequestError(f"Source {word!r}: write git+ssh://{host}/{path.lstrip('/')}.")
    if "://" in word or word.startswith("git+"):
        return _git_source(word)
    if word.startswith("-") or "::" in word:
        raise RequestError(f"Source {word!r} must be {_KNOWN}.")
    if not word:
        raise RequestError(f"The source is empty. It must be {_KNOWN}.")
    # absolute(), not resolve(): a group may publish by turning a link to the next version.
    folder = typed_path(word)
    place = str(folder.resolve() if ".." in folder.parts else folder)
    if not place.isprintable():
        raise RequestError(
            f"{place!r} has a sign that is not printable, or is not UTF-8. Rename the folder."
        )
    return Source(is_git=False, location=place)


def _git_source(word: str) -> Source:
    scheme, _, rest = word.removeprefix("git+").partition("://")
    if scheme not in _SCHEMES:
        raise RequestError(
            f"Source {_shown(word)!r}: {scheme or 'nothing'!r} is not https, ssh or file, the "
            f"ways to fetch a collection. Write {_KNOWN}."
        )
    authority, slash, path = rest.partition("/")
    _refuse_secrets(word, scheme, authority, path)
    path, _, rev = path.rpartition("@") if "@" in path else (path, "", "")
    if not slash or not path or path.startswith("-"):
        raise RequestError(f"Source {word!r} does not name a repository. Write {_KNOWN}.")
    _check_authority(word, scheme, authority)
    if "@" in word and word.endswith("@"):
        raise RequestError(f"Source {word!r} ends with @. Write a tag, branch or commit after it.")
    return Source(
        is_git=True, location=f"{scheme}://{authority}/{path}", rev=check_rev(rev) if rev else None
    )


def _refuse_secrets(word: str, scheme: str, authority: str, path: str) -> None:
    """Refuse what may be a token or a password: a lock file shows it to all who read it."""
    user, _, host = authority.rpartition("@")
    instead = "ssh uses keys"
    if scheme == "ssh":  # there a user's name is part of the address: git@github.com
        what = "a password" if ":" in user else ""
    elif scheme == "https":
        what = "a user or a token" if user else "a query" if {"?", "#"} & {*path, *host} else ""
        instead = (
            "git asks its credential helper, and takes the user name from "
            f"git config --global credential.https://{_host(host)}.username NAME"
        )
    else:
        what = ""
    if what:
        raise RequestError(
            f"Source {_shown(word)!r} contains {what}. All readers of the lock file "
            f"would see it. Leave it out: {instead}"
        )


def _host(text: str) -> str:
    match = re.match(_HOST, text)
    return match[0] if match else "HOST"


def _shown(word: str) -> str:
    """Return a URL without what may be secret in it, for an error's message."""
    return re.sub(r"[?#].*", "?...", re.sub(r"(://|^)[^/]*@", r"\1...@", word))


def _check_authority(word: str, scheme: str, authority: str) -> None:
    if scheme == "file":
        if authority:
            raise RequestError(
                f"Source {_shown(word)!r}: a file URL has three slashes, file:///PATH."
            )
        return
    if not re.fullmatch(_AUTHORITY, authority):
        host, _, group = authority.rpartition(":")
        words = (rf"{_AUTHORITY}:(?a:[\w.~-]+)", authority)
        instead = word.replace(authority, f"{host}/{group}", 1)
        write = f" After a host stands a slash: write {instead}." if re.fullmatch(*words) else ""
        raise RequestError(f"Source {_shown(word)!r}: {authority!r} is not a host.{write}")


def check_rev(rev: str) -> str:
    """Return the name of a tag, branch or commit.

    Raises:
        RequestError: git could read it as an option, a range or a path.
    """
    if not re.fullmatch(_REV, rev) or ".." in rev or len(rev) > _LONGEST:
        raise RequestError(
            f"Revision {rev!r} must be a tag, a branch or a commit: letters, digits and ._/+- only."
        )
    return rev


def is_commit(rev: str) -> bool:
    """Say whether a revision is a commit's whole name, in SHA-1 or SHA-256, and no branch's."""
    return len(rev) in (40, 64) and bool(re.fullmatch(_HEXADECIMAL, rev))


def checkout_folder(source: Source, commit: str, cache: Path) -> Path:
    """Return where a commit's files are, or would be."""
    return cache / "collections" / _key(source) / commit


def repository(source: Source, cache: Path) -> Path:
    """Return where the clone of a source is, or would be."""
    return cache / "collections" / _key(source) / "repository.git"


def _key(source: Source) -> str:
    stem = re.sub(r"[^A-Za-z0-9.-]+", "-", source.location.rpartition("/")[2].removesuffix(".git"))
    return f"{stem.strip('.-')[:40]}-{sha256(source.location.encode()).hexdigest()[:12]}"

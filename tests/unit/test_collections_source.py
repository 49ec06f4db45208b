"""What may be written as a source: git and ssh must not find an option or a program in it."""

from pathlib import Path

import pytest

from hpckit.collections.source import check_rev, parse_source
from hpckit.errors import RequestError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("word", "shown", "rev"),
    [
        ("git+https://git.example.org/lab.git", "git+https://git.example.org/lab.git", None),
        ("git+https://git.example.org/lab.git@v1.2", "git+https://git.example.org/lab.git", "v1.2"),
        ("https://h/lab@main", "git+https://h/lab", "main"),
        ("git+ssh://git@h:2222/a/b.git@x/y", "git+ssh://git@h:2222/a/b.git", "x/y"),
        ("git+ssh://git@h/a/b.git", "git+ssh://git@h/a/b.git", None),
        (f"file:///proj/my lab.git@{COMMIT}", "git+file:///proj/my lab.git", COMMIT),
        ("git+ssh://git@[::1]/b.git", "git+ssh://git@[::1]/b.git", None),
    ],
)
def test_a_git_source_is_a_url_and_a_revision(word: str, shown: str, rev: str | None) -> None:
    source = parse_source(word)
    assert (str(source), source.rev, source.is_git) == (shown, rev, True)
    assert parse_source(shown).location == source.location


def test_a_folder_is_absolute_and_keeps_its_link(here: Path) -> None:
    (here / "v2").mkdir()
    (here / "current").symlink_to("v2")
    assert str(parse_source("current")) == str(here / "current")
    assert str(parse_source("../work/v2")) == str(here / "v2")
    assert not parse_source("current").is_git
    assert str(parse_source("~nobody-here/lab")) == str(here / "~nobody-here" / "lab")


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("git+http://h/lab.git", "'http' is not https, ssh or file"),
        ("git://h/lab.git", "'git' is not https, ssh or file"),
        ("git+ext::sh -c 'touch /tmp/x'", "is not https, ssh or file"),
        ("ext::sh -c 'touch /tmp/x'", "must be a folder"),
        ("git+ext://h/x", "'ext' is not https, ssh or file"),
        ("fd::17", "must be a folder"),
        ("--upload-pack=touch /tmp/x", "must be a folder"),
        ("-u", "must be a folder"),
        ("git+--upload-pack=x", "is not https, ssh or file"),
        ("git+ssh://-oProxyCommand=touch/x", "is not a host"),
        ("git+ssh://git@-oProxyCommand=x/y", "is not a host"),
        ("git+ssh://h;touch/x", "is not a host"),
        ("git+https://h", "does not name a repository"),
        ("git+https:///x", "is not a host"),
        ("file://host/x", "three slashes"),
        (
            "git+https://me:secret@h/x.git",
            "contains a user or a token.*credential.https://h.username",
        ),
        ("git+https://ghp_secret@h/x.git", "contains a user or a token"),
        ("git+https://secret@h", "contains a user or a token"),
        ("git+http://me:secret@h/x", "'http' is not https, ssh or file"),
        ("git+https://h/x.git?private_token=secret", "contains a query"),
        ("git+https://h/x.git@v1?private_token=secret", "contains a query"),
        ("git+https://h/x.git#secret", "contains a query"),
        ("git+ssh://git:secret@h/x.git", "contains a password.*ssh uses keys"),
        ("git+https://h/x.git@--upload-pack=x", "letters, digits"),
        ("git+https://h/x.git@a..b", "letters, digits"),
        ("git+https://h/x.git@", "ends with @"),
        ("git+https://h/x\n.git", "control character"),
        ("git@github.com:lab/x.git", r"write git\+ssh://git@github.com/lab/x.git"),
        ("git+git@github.com:lab/x.git@v1", r"write git\+ssh://git@github.com/lab/x.git@v1\."),
        (
            "git+ssh://git@github.com:lab/x.git@v1",
            r"'git@github.com:lab' is not a host. After a host stands a slash: write "
            r"git\+ssh://git@github.com/lab/x.git@v1\.",
        ),
        ("git+ssh://h:;touch/x", r"'h:;touch' is not a host\.$"),
        ("", "source is empty"),
    ],
)
def test_anything_else_is_refused(word: str, why: str, here: Path) -> None:
    with pytest.raises(RequestError, match=why) as refused:
        parse_source(word)
    assert "secret" not in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "rev",
    ["x" * 201, "a\nb", "v1\n", "-u", "--to", "a b", "a..b", "a:b", "HEAD~1", "@{1}", "a^", "é"],
)
def test_a_revision_is_a_plain_name(rev: str) -> None:
    with pytest.raises(RequestError, match="must be a tag, a branch or a commit"):
        check_rev(rev)

"""Values quoted for bash, and where a template's expression stands: outside quotes or inside."""

import re
import shlex
import unicodedata

_TOKEN = re.compile(
    # One left open goes to the end: looking for its end again and again would take minutes.
    r"(?P<comment>\{#.*?(?:#\}|\Z))|(?P<statement>\{%.*?(?:%\}|\Z))"
    r"|(?P<expression>\{\{.*?(?:\}\}|\Z))|(?P<text>.)",
    re.DOTALL,
)
_HEREDOC = re.compile(r"(?<!<)<<(?!<)-?[ \t]*\\?(['\"]?)([\w.,:+@%/-]+)\1")
_PLACEHOLDER = "\x00"
_UNSAFE = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


class ShellCode(str):
    """Text a site's or collection's author wrote as shell code; it is printed as it is."""

    __slots__ = ()


def shell_word(value: object) -> str:
    """Quote one value for bash; lists become several words.

    Raises:
        ValueError: the value holds a control character, which no quoting makes safe in a comment
            or an #SBATCH line.
    """
    if isinstance(value, ShellCode):
        return str(value)
    if isinstance(value, list | tuple):
        return " ".join(shell_word(item) for item in value)
    text = str(value)
    # C*: control and the like; Zl and Zp: Unicode's own line breaks.
    if any(unicodedata.category(c) in _UNSAFE and c != "\t" for c in text):
        raise ValueError(f"value {text!r} holds a control character, which a script cannot hold")
    return shlex.quote(text)


def quoted_expression(source: str) -> tuple[int, str] | None:
    """Return line and text of the first expression inside quotes, backticks or a here-document.

    Jinja's own statements are taken as transparent: quotes must be balanced within a branch, as
    any readable template has them.
    """
    text, expressions = _flattened(source)
    for position in _inside_quotes(text):
        return text.count("\n", 0, position) + 1, expressions[text.count(_PLACEHOLDER, 0, position)]
    return None


def _flattened(source: str) -> tuple[str, list[str]]:
    parts, expressions = [], []
    for match in _TOKEN.finditer(source):
        if match["expression"]:
            expressions.append(match.group())
            # Line breaks stay, so that line numbers stay.
            parts.append(_PLACEHOLDER + "\n" * match.group().count("\n"))
        elif match["text"]:
            parts.append(match.group())
        else:
            parts.append("\n" * match.group().count("\n"))
    return "".join(parts), expressions


def _inside_quotes(text: str) -> list[int]:
    """Walk bash text; return the positions of placeholders where a quoted word would not hold."""
    found, quote, position = [], "", 0
    while position < len(text):
        character = text[position]
        if character == _PLACEHOLDER and quote:
            found.append(position)
        if quote:
            if character == "\\" and quote != "'":
                position += 1
            elif character == quote:
                quote = ""
        elif character == "\\":
            position += 1
        elif character in "'\"`":
            quote = character
        elif character == "#" and (position == 0 or text[position - 1] in " \t\n;("):
            end = text.find("\n", position)
            position = len(text) if end < 0 else end
            continue
        elif heredoc := _HEREDOC.match(text, position):
            end = text.find(f"\n{heredoc[2]}", heredoc.end())
            end = len(text) if end < 0 else end
            body = range(text.find("\n", heredoc.end()), end)
            found += [place for place in body if text[place] == _PLACEHOLDER]
            position = end
            continue
        position += 1
    return found

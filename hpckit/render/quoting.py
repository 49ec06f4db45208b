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
# The word that ends a here-document, of pieces quoted or not: bash(1), "Here Documents".
_HEREDOC = re.compile(
    r"""(?<!<)<<(?!<)(?P<dash>-?)[ \t]*"""
    r"""(?P<word>(?:\\.|'[^']*'|"(?:\\.|[^"\\])*"|[^\s;&|<>()'"\\])+)""",
    re.DOTALL,
)
_PIECE = re.compile(r"""\\(.)|'([^']*)'|"((?:\\.|[^"\\])*)"|(.)""", re.DOTALL)
_QUOTES = frozenset({"'", '"', "`", "$'"})
_PLACEHOLDER = "\x00"
_UNSAFE = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


class ShellCode(str):
    """Text a site's or collection's author wrote as shell code; it is printed as it is."""

    __slots__ = ()


def shell_word(value: object) -> str:
    """Quote one value for bash; lists become several words.

    Raises:
        ValueError: the value is neither text, number nor list, or holds a control character, which
            no quoting makes safe in a comment or an #SBATCH line.
    """
    if isinstance(value, ShellCode):
        return str(value)
    if isinstance(value, list | tuple):
        return " ".join(shell_word(item) for item in value)
    if not isinstance(value, str | int | float):
        raise ValueError(f"a value of type {type(value).__name__} cannot be printed")
    text = str(value)
    # C*: control and the like; Zl and Zp: Unicode's own line breaks.
    if any(unicodedata.category(c) in _UNSAFE and c != "\t" for c in text):
        raise ValueError(f"value {text!r} contains a control character. A script cannot contain it")
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
    """Walk bash text; return the positions of placeholders where a quoted word would not hold.

    What is quoted may hold commands, `"$(...)"`, which hold quotes of their own; a value anywhere
    in it counts as quoted. Where bash's rules are finer than these, these are the stricter ones.
    """
    found: list[int] = []
    stack: list[str] = []  # of the quotes, and within them of `$(`, `(` and `${`
    bodies: list[re.Match[str]] = []  # of here-documents, which begin on the next line
    position = 0
    while position < len(text):
        character, top = text[position], stack[-1] if stack else ""
        if character == _PLACEHOLDER and not _QUOTES.isdisjoint(stack):
            found.append(position)
        if character == "\n" and bodies and top in ("", "("):
            start = position
            for body in bodies:
                position = _end_of_heredoc(text, position, body)
            found += [place for place in range(start, position) if text[place] == _PLACEHOLDER]
            bodies = []
            if position > start:
                continue
        elif character == "\\" and top != "'":
            position += 1
            if text[position : position + 1] == _PLACEHOLDER:  # it would escape the value's quote
                found.append(position)
        elif not stack and character == "#" and _begins_word(text, position):
            end = text.find("\n", position)
            position = len(text) if end < 0 else end
            continue
        elif top in ("", "(") and (heredoc := _HEREDOC.match(text, position)):
            bodies.append(heredoc)
            at = heredoc.start("word"), heredoc.end()
            found += [place for place in range(*at) if text[place] == _PLACEHOLDER]
            position = heredoc.end()
            continue
        else:
            position += _step(text, position, stack)
        position += 1
    return found


def _step(text: str, position: int, stack: list[str]) -> int:
    """Open or close what a character opens or closes; return how many more belong to it."""
    character, top = text[position], stack[-1] if stack else ""
    if top in ("'", "$'"):
        if character == "'":
            stack.pop()
    elif character == "`" and "`" in stack:  # it ends whatever was opened after the first one
        del stack[stack.index("`") :]
    elif character == '"' and top == '"':
        stack.pop()
    elif character in '"`':
        stack.append(character)
    elif character == "$" and text[position + 1 : position + 2] in ("(", "{") and stack:
        stack.append(text[position + 1])
        return 1
    elif top == "(" and character in "()":
        stack.append("(") if character == "(" else stack.pop()
    elif top == "{" and character == "}":
        stack.pop()
    elif top in ("", "(", "`") and text.startswith("$'", position):
        stack.append("$'")
        return 1
    elif top in ("", "(", "`") and character == "'":
        stack.append("'")
    return 0


def _begins_word(text: str, position: int) -> bool:
    return position == 0 or text[position - 1] in " \t\n;&|()<>"


def _end_of_heredoc(text: str, start: int, heredoc: re.Match[str]) -> int:
    """Return where the line that is nothing but the end word ends; a longer one does not end it."""
    word = _PIECE.sub(lambda piece: next(filter(None, piece.groups()), ""), heredoc["word"])
    tabs = "\t*" if heredoc["dash"] else ""
    # A backslash before the line break joins the lines, so the word would not stand alone.
    end = re.compile(rf"(?<!\\)\n{tabs}{re.escape(word)}(?=\n|\Z)").search(text, start)
    return end.end() if end else len(text)

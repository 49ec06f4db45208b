"""Pictures for papers and slides, drawn by matplotlib: what all of them share.

A picture is a function that draws on an empty figure, and `write_picture` makes a file of it:

    def draw(figure):
        axes = figure.add_subplot()
        axes.plot([1, 2, 4], [1.0, 1.9, 3.6], **line_style(0))
        name_axes(axes, "Speed-up", x="GPUs", y="times")
        plain_ticks(axes.xaxis, [1, 2, 4])

    write_picture(Path("speed.svg"), "svg", draw, title="Speed-up of job 4242")

The same figures give the same bytes: no dates, no random names, and no settings of the user's own
matplotlib. Every text is text: nothing is taken for mathematics, control characters are spelt out,
and in an SVG it can be searched and edited.
"""

import io
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hpckit.errors import OutsideError
from hpckit.files import write_shown
from hpckit.text import in_line
from hpckit.version import __version__, to_install

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.ticker import Formatter

Kind = Literal["png", "svg"]
Size = tuple[float, float]  # width and height, in inches

# Okabe and Ito's, in the order of the pages (`--c0`... in pages/assets/page.css, light).
COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#7f7f7f",
)  # fmt: skip
# After all colours once: the same with dashes, so that no two of 32 lines look alike.
DASHES: tuple[Any, ...] = ("-", (0, (6, 3)), (0, (1.5, 2)), (0, (7, 2, 2, 2)))
TEXT, DIM, GRID, BETWEEN = "#1b1f24", "#57606a", "#e4e8ec", "#6e7681"
WIDTH_IN = 7.2  # two columns of most journals
BAND_ALPHA = 0.2
SEVERAL_LINES = "lines"  # as the `gid` of a text: our own, whose line breaks are meant
_DPI = 200
# Of a legend: how wide a line's sample with its margins is, and most letters.
_SAMPLE_IN, _LETTER_IN, _LONGEST_NAME = 0.55, 0.068, 40
_STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": DIM,
    "axes.grid": True,
    "axes.labelcolor": TEXT,
    "axes.linewidth": 0.7,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 9,
    "figure.dpi": 100,
    "figure.facecolor": "white",
    "font.family": ["sans-serif"],
    # The one that matplotlib brings; readers of an SVG without it see one of the next.
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "Helvetica"],
    "font.size": 8,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    "path.simplify": True,
    "savefig.dpi": _DPI,
    "svg.fonttype": "none",
    "svg.hashsalt": "hpckit",
    "text.color": TEXT,
    "text.parse_math": False,
    "text.usetex": False,
    "xtick.color": DIM,
    "xtick.labelsize": 7.5,
    "ytick.color": DIM,
    "ytick.labelsize": 7.5,
}


def write_picture(
    path: Path, kind: Kind, draw: Callable[["Figure"], None], *, size: Size, title: str
) -> Path:
    """Draw a picture and write it beside and replaced; return its path.

    Args:
        path: of the file; its ending says nothing.
        kind: how it is written.
        draw: draws on an empty figure.
        size: of the picture.
        title: for those who cannot see it.

    Raises:
        OutsideError: matplotlib is not installed, or the file cannot be written.
    """
    return write_shown(path, render(kind, draw, size=size, title=title), "picture")


def render(kind: Kind, draw: Callable[["Figure"], None], *, size: Size, title: str) -> bytes:
    """Return a picture as the bytes of its file; see `write_picture`."""
    stream = io.BytesIO()
    with _matplotlib():
        from matplotlib.figure import Figure  # an extra, and slow

        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        _make_plain(figure)
        said = {"Title": _short(title), "Date" if kind == "svg" else "Software": None}
        if kind == "svg":
            said["Creator"] = f"hpckit {__version__}"
        figure.savefig(stream, format=kind, metadata=said)
    return stream.getvalue()


def require_matplotlib() -> None:
    """Raise if matplotlib cannot draw, before what it is to draw has been read.

    Raises:
        OutsideError: it is not there, or does not start.
    """
    try:
        import matplotlib  # noqa: F401  # an extra, and slow
    except ImportError as error:
        raise OutsideError(
            "Pictures are drawn by matplotlib, which is not installed beside hpckit. "
            f"{to_install('matplotlib>=3.8')}"
        ) from error
    except Exception as error:  # it reads the user's settings first, which may be wrong
        raise OutsideError(
            f"Pictures are drawn by matplotlib, which does not start: {in_line(_first(error))}. "
            "Look at $MPLBACKEND, and at your matplotlibrc."
        ) from error


def _first(error: Exception) -> str:
    """Return an error's text without the list of all that would be right."""
    return str(error).partition(";")[0].rstrip(".")


@contextmanager
def _matplotlib() -> Iterator[None]:
    """Give matplotlib our settings, and none of the user's; raise if it is not there."""
    require_matplotlib()
    import matplotlib

    log = logging.getLogger("matplotlib.font_manager")
    level = log.level
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        # A letter that the font lacks is drawn as a box.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        # Names may leave a small picture no room: it is drawn as well as it can be.
        warnings.filterwarnings("ignore", "constrained_layout not applied", UserWarning)
        log.setLevel(logging.ERROR)  # families of the list above that this machine lacks
        try:
            yield
        finally:
            log.setLevel(level)


def _make_plain(figure: "Figure") -> None:
    """Spell out what is no letter in all texts of a figure, and cut what would fill it."""
    from matplotlib.text import Text

    for artist in figure.findobj(Text):
        if isinstance(artist, Text):
            text = artist.get_text()
            lines = text.split("\n") if artist.get_gid() == SEVERAL_LINES else [text]
            artist.set_text("\n".join(map(_short, lines)))
    for axes in figure.get_axes():
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(_plain_names(axis.get_major_formatter()))


def _plain_names(inner: "Formatter") -> "Formatter":
    """Return a formatter of ticks, whose texts are made when they are drawn; lines may be ours."""
    from matplotlib.ticker import Formatter

    class Plain(Formatter):
        def __call__(self, x: float, pos: int | None = None) -> str:
            return self._plain(inner(x, pos))

        def format_ticks(self, values: Iterable[float]) -> list[str]:
            return [self._plain(text) for text in inner.format_ticks(list(values))]

        def get_offset(self) -> str:
            return inner.get_offset()

        def set_locs(self, locs: Iterable[float]) -> None:
            inner.set_locs(list(locs))

        def _plain(self, text: str) -> str:
            return "\n".join(_short(line, 32) for line in text.split("\n"))

    return Plain()


def _short(text: str, most: int = 110) -> str:
    """Return a text in one line of letters that are seen."""
    plain = in_line(text)
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"


def line_style(number: int) -> dict[str, Any]:
    """Return how a picture's line is drawn: its colour and dashes, as on the pages."""
    at = number // len(COLOURS) % len(DASHES)
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": DASHES[at]}


def name_axes(axes: "Axes", title: str, *, x: str = "", y: str = "") -> None:
    """Write a title and what the axes count, with its unit."""
    axes.set_title(title)
    axes.set_xlabel(x)
    axes.set_ylabel(y)


def plain_ticks(axis: "Axis", values: Sequence[float]) -> None:
    """Set an axis' ticks to these numbers, written as numbers: also where it is logarithmic."""
    from matplotlib.ticker import NullLocator

    axis.set_ticks(list(values), [f"{value:g}" for value in values])
    axis.set_minor_locator(NullLocator())


def place_legend(axes: "Axes", lines: Sequence[Any], names: Sequence[str]) -> None:
    """Name lines above the axes and their title, in as many columns as there is room for.

    `names` may be anybody's words: long ones are cut, so that the picture keeps its room.
    """
    short = [_short(name, _LONGEST_NAME) for name in names]
    above: dict[str, Any] = {"bbox_to_anchor": (0, 1), "borderaxespad": 2.3, "borderpad": 0.2}
    axes.legend(list(lines), short, loc="lower left", ncols=columns_of(names), **above)


def columns_of(names: Sequence[str]) -> int:
    """Return how many columns a legend above a picture of `WIDTH_IN` has."""
    longest = max((len(_short(name, _LONGEST_NAME)) for name in names), default=0)
    return max(int((WIDTH_IN - 0.8) / (_SAMPLE_IN + longest * _LETTER_IN)), 1)

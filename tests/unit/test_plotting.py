"""Pictures for papers: the same bytes each time, every text as text."""

import re
import sys
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import fromstring

import pytest

from hpckit.errors import OutsideError
from hpckit.plotting import (
    COLOURS,
    DASHES,
    line_style,
    name_axes,
    place_legend,
    plain_ticks,
    render,
    require_matplotlib,
    write_picture,
)

ROOT = Path(__file__).parents[2]
MATHS, ORDER, MARKUP = r"$\frac{1}{$ _{", "\x1b[31mred\u202e\n", "</svg><script>&"
SVG = "{http://www.w3.org/2000/svg}"


def draw(figure: Any) -> None:
    axes = figure.add_subplot()
    lines = [axes.plot([1, 2, 4], [at, 2, 3], **line_style(at))[0] for at in range(2)]
    axes.set_xscale("log")
    name_axes(axes, MATHS, x=ORDER, y=MARKUP)
    plain_ticks(axes.xaxis, [1, 2, 4])
    axes.set_yticks([2], [MATHS + ORDER])
    place_legend(axes, lines, ["_hidden", "x" * 300])


def texts(svg: bytes) -> list[str]:
    return ["".join(found.itertext()) for found in fromstring(svg).iter(f"{SVG}text")]


def drawn(kind: Any, title: str = "A picture") -> bytes:
    return render(kind, draw, size=(5, 3), title=title)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["png", "svg"])
def test_the_same_figures_give_the_same_bytes_and_no_date(kind: str) -> None:
    assert drawn(kind) == drawn(kind)
    assert b"date" not in drawn(kind).lower()


@pytest.mark.long
def test_every_text_stays_text() -> None:
    found = texts(drawn("svg", title=MARKUP))
    spelt = r"\x1b[31mred\u202e\n"
    assert {MATHS, spelt, MARKUP, "_hidden"} <= set(found)
    ticks = [text for text in found if text.startswith(MATHS + r"\x1b[31")]
    assert len(ticks) == 1, "a tick's name is a text too, made when it is drawn"
    assert fromstring(drawn("svg", title=MARKUP)).findtext(f"{SVG}title") == MARKUP
    assert [text for text in found if text in {"1", "2", "4"}] == ["1", "2", "4"]
    cut = next(text for text in found if text.startswith("xx"))
    assert len(cut) == 40
    assert cut.endswith("…")


@pytest.mark.long
def test_settings_of_the_users_matplotlib_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    before = drawn("png")
    for name, value in {"font.size": 30.0, "text.usetex": True, "axes.facecolor": "black"}.items():
        monkeypatch.setitem(matplotlib.rcParams, name, value)
    assert drawn("png") == before
    assert matplotlib.rcParams["font.size"] == 30.0


def test_letters_that_the_font_lacks_warn_nobody() -> None:
    """pytest makes errors of warnings."""

    def chinese(figure: Any) -> None:
        figure.add_subplot().set_title("训练")

    assert "训练" in texts(render("svg", chinese, size=(3, 2), title=""))
    render("png", chinese, size=(3, 2), title="")


def test_colours_are_those_of_the_pages() -> None:
    style = (ROOT / "hpckit/pages/assets/page.css").read_text()
    light = style[: style.index("@media")]
    assert re.findall(r"--c\d: (#\w+)", light) == list(COLOURS)
    styles = [line_style(at) for at in range(len(COLOURS) * len(DASHES))]
    assert len({str(style) for style in styles}) == len(styles)


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(OutsideError, match=r" -m pip install 'matplotlib>=3.8'"):
        drawn("png")


def test_matplotlib_that_the_users_settings_keep_from_starting_is_an_error_of_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was a traceback: matplotlib reads $MPLBACKEND when it is first imported."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setenv("MPLBACKEND", "nonsense")
    with pytest.raises(OutsideError, match=r"does not start: .*'nonsense'.* Look at \$MPLBACKEND"):
        require_matplotlib()


def test_a_picture_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError):
        write_picture(path, "png", lambda figure: figure.clf(1 / 0), size=(3, 2), title="")
    assert path.read_text() == "old"
    assert write_picture(path, "png", draw, size=(3, 2), title="") == path
    assert path.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(OutsideError, match="cannot be written: No such file"):
        write_picture(tmp_path / "no" / "a.png", "png", draw, size=(3, 2), title="")
    assert [entry.name for entry in tmp_path.iterdir()] == ["picture.png"]

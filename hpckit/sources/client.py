"""A Prometheus, asked over HTTP: bounded in time and size, and no redirect is followed.

Its API: prometheus.io/docs/prometheus/latest/querying/api.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPResponse
from typing import Any
from urllib.parse import urlencode, urlsplit

from hpckit.errors import OutsideError
from hpckit.files import DamagedFileError, parse_json
from hpckit.sites.prometheus import Prometheus
from hpckit.text import in_line
from hpckit.web import WORDS, connect, secret_of_file, secret_of_variable, talking, within

# A week of 8 GPUs every 15 s would be 40 MB; `hpckit.sources.ask` asks for less.
_MOST_BYTES = 64 << 20
# Longer addresses are refused by some servers before Prometheus: they are sent as forms.
_LONGEST_ADDRESS = 6000
_OK, _REDIRECTS, _UNAUTHORIZED, _FORBIDDEN = 200, range(300, 400), 401, 403
# Prometheus says in JSON what is wrong with a question.
_EXPLAINED = (400, 422, 503)


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """One series of an answer: its labels, and (epoch seconds, value) in order.

    What is no number (NaN, +Inf) is left out.
    """

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]


@dataclass(kw_only=True, slots=True)
class Client:
    """One server during one command: all questions share the site's patience.

    Attributes:
        left_s: for how long it may still be waited for.
        trouble: why it is asked no more.
        names: whose names its series of GPUs have, once `hpckit.sources.ask` has seen some.
    """

    settings: Prometheus
    left_s: float = 0.0
    trouble: str | None = None
    names: str | None = None

    def __post_init__(self) -> None:
        self.left_s = self.settings.timeout_s

    def instant(self, query: str, at: float) -> list[Series]:
        """Return the value of each series at a moment, in epoch seconds.

        Raises:
            OutsideError: why there is no answer, in half a sentence.
        """
        return self._ask("query", {"query": query, "time": f"{at:.3f}"}, "vector")

    def over_time(self, query: str, start: float, end: float, step_s: float) -> list[Series]:
        """Return the values of each series from start to end, `step_s` apart.

        Raises:
            OutsideError: why there is no answer, in half a sentence.
        """
        times = {"start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step_s:.3f}"}
        return self._ask("query_range", {"query": query, **times}, "matrix")

    def version(self) -> str:
        """Return its version, as far as it says.

        Raises:
            OutsideError: why there is no answer, in half a sentence.
        """
        said = self._get("status/buildinfo", {})
        version = said.get("version") if isinstance(said, dict) else None
        return in_line(str(version))[:40] if version else "of unknown version"

    def _ask(self, path: str, form: Mapping[str, str], kind: str) -> list[Series]:
        data = self._get(path, form)
        if not isinstance(data, dict) or data.get("resultType") != kind:
            raise OutsideError(f"its answer is not a {kind}")
        rows = data.get("result")
        if not isinstance(rows, list):
            raise OutsideError("its answer has no result")
        return [_series(row) for row in rows]

    def _get(self, path: str, form: Mapping[str, str]) -> object:
        if self.trouble:
            raise OutsideError(self.trouble)
        if self.left_s <= 0:
            raise OutsideError(
                f"it was not asked: it took all of {self.settings.timeout_s:g} s (timeout_s) before"
            )
        began = time.monotonic()
        try:
            body = within(self.left_s, lambda: _exchange(self.settings, path, form, self.left_s))
        except OutsideError as error:
            self.trouble = str(error)  # it is not waited for again and again
            raise
        finally:
            self.left_s -= time.monotonic() - began
        return _data(body)


def _exchange(settings: Prometheus, path: str, form: Mapping[str, str], timeout_s: float) -> bytes:
    """Return the body of an answer that Prometheus itself gave."""
    parts = urlsplit(settings.url)
    headers = {"Accept": "application/json", "User-Agent": "hpckit", **_secrets(settings)}
    connection = connect(parts, settings.ca_file, timeout_s)
    address, text = f"{parts.path}/api/v1/{path}", urlencode(form)
    try:
        with talking(timeout_s, "a Prometheus"):
            if len(text) <= _LONGEST_ADDRESS:
                connection.request("GET", f"{address}?{text}" if text else address, headers=headers)
            else:
                headers["Content-Type"] = "application/x-www-form-urlencoded"
                connection.request("POST", address, body=text, headers=headers)
            with connection.getresponse() as response:
                return _body(response)
    finally:
        connection.close()


def _body(response: HTTPResponse) -> bytes:
    status = response.status
    if status in _REDIRECTS:
        where = in_line(response.headers.get("Location") or "nowhere")[:WORDS]
        raise OutsideError(f"it sends us on to {where}: write the right address into the site")
    if status in (_UNAUTHORIZED, _FORBIDDEN):
        raise OutsideError(f"it refuses us (HTTP {status}): see token_env and token_file")
    body = response.read(_MOST_BYTES + 1)
    if len(body) > _MOST_BYTES:
        raise OutsideError(f"its answer is larger than {_MOST_BYTES >> 20} MiB")
    if status != _OK and status not in _EXPLAINED:
        raise OutsideError(f"it answers HTTP {status} ({in_line(response.reason)[:WORDS]})")
    return body


def _secrets(settings: Prometheus) -> dict[str, str]:
    found = {name: secret_of_variable(word) for name, word in settings.headers_env.items()}
    token = None
    if settings.token_env:
        token = secret_of_variable(settings.token_env)
    elif settings.token_file:
        token = secret_of_file(settings.token_file, "token_file")
    return found | ({"Authorization": f"Bearer {token}"} if token else {})


def _data(body: bytes) -> object:
    try:
        answer = parse_json(body)
    except (DamagedFileError, UnicodeDecodeError) as error:
        begun = in_line(body[:60].decode("utf-8", "replace"))
        raise OutsideError(f"its answer is not JSON: {begun!r}") from error
    if not isinstance(answer, dict) or answer.get("status") not in ("success", "error"):
        raise OutsideError("its answer is not one of a Prometheus")
    if answer["status"] == "error":
        raise OutsideError(f"it says: {in_line(str(answer.get('error')))[:WORDS]}")
    return answer.get("data")


def _series(row: object) -> Series:
    labels = row.get("metric") if isinstance(row, dict) else None
    if not isinstance(row, dict) or not isinstance(labels, dict):
        raise OutsideError("its answer has a series without labels")
    points = row.get("values", [row.get("value")])
    if not isinstance(points, list):
        raise OutsideError("its answer has a series without values")
    return Series(
        labels={str(name): str(value) for name, value in labels.items()},
        points=tuple(point for pair in points if (point := _point(pair))),
    )


def _point(pair: Any) -> tuple[float, float] | None:  # noqa: ANN401
    """Return a moment and a value; None where the value is not a number."""
    try:
        moment, text = pair
        value = float(text)
        when = float(moment)
    except (TypeError, ValueError) as error:
        raise OutsideError("its answer has a value that is not a pair of time and text") from error
    return (when, value) if math.isfinite(value) and math.isfinite(when) else None

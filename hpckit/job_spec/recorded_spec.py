"""What a run was asked for, as its record has it, and the same with changes: for `resubmit`."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from hpckit.errors import RequestError
from hpckit.files import DamagedFileError
from hpckit.job_spec.spec import JobSpec, field_of
from hpckit.values import rebuild

# Fields of KEY or KEY=VALUE texts: to change one key leaves the others as they are.
_BY_KEY = ("settings", "sbatch")
# The fields that are reset with an option that is dropped.
_WITH: Mapping[str, Mapping[str, Any]] = {
    "gpus": {"gpu_type": None},
    "array": {"zip": False, "parallel": None},
    "retry": {"retries": 1},
}


def with_changes(spec: JobSpec, changes: Mapping[str, Any]) -> JobSpec:
    """Return what was asked, with other values for some fields."""
    merged = {
        name: (*_other_keys(getattr(spec, name), map(_key, changes[name])), *changes[name])
        for name in _BY_KEY
        if name in changes
    }
    return replace(spec, **{**changes, **merged})


def without(spec: JobSpec, unset: Iterable[str]) -> JobSpec:
    """Return what was asked, without some options: `partition`, or `sbatch:mail-type` for one key.

    Raises:
        RequestError: there is no such option, or it was not asked for.
    """
    for text in unset:
        option_word, _, key = text.lstrip("-").partition(":")
        word = option_word.replace("-", "_")
        name = field_of(word)
        default = JobSpec.__dataclass_fields__[name].default
        asked = getattr(spec, name)
        left = tuple(_other_keys(asked, [_key(key)])) if key and name in _BY_KEY else default
        if left == asked:
            raise RequestError(f"--unset {text!r}: the recorded request did not ask for it.")
        changes: dict[str, Any] = {name: left, **_WITH.get(name, {})}
        spec = replace(spec, **changes)
    return spec


def _other_keys(texts: Iterable[str], keys: Iterable[str]) -> list[str]:
    gone = set(keys)
    return [text for text in texts if _key(text) not in gone]


def _key(text: str) -> str:
    return text.removeprefix("--").partition("=")[0].replace("_", "-")


def spec_from_record(record: object) -> JobSpec:
    """Rebuild what was asked from `run.json`, which may be another user's.

    Raises:
        RequestError: the record has keys this version does not know, or values of other types.
    """
    if isinstance(record, Mapping) and "script" in record:  # its name in 0.1
        record = {"program": record["script"], **record}
        del record["script"]
    try:
        return rebuild(JobSpec, record)
    except DamagedFileError as error:
        raise RequestError(
            f"The recorded request was written by another version of hpckit: {error}."
        ) from error

"""Reads rules: one YAML file each, `templates/advice/ID.yaml`.

Everything in a rule is checked when it is read: keys, names, kinds. A rule that was read cannot
fail on a job.
"""

from pathlib import Path

from hpckit.collections import Found
from hpckit.documents import Fields, parse_document, text_of
from hpckit.errors import ConfigError
from hpckit.stats.advice.expressions import Expression, Text
from hpckit.stats.advice.functions import FUNCTIONS, Kind, Names, Value, kind_of
from hpckit.stats.advice.namespace import NOW, SUBJECTS, names_for
from hpckit.stats.advice.parsing import read_expression, read_text
from hpckit.stats.advice.rules import (
    DEVICES,
    DRIVER,
    SAMPLES,
    SLURM,
    TEXT_NAMES,
    Marks,
    Rule,
    Severity,
    switched_off,
)


def read_rule(found: Found) -> Rule:
    """Read one rule.

    Raises:
        ConfigError: it is not a rule; with file and line.
    """
    return parse_rule(text_of(found.path), found)


def parse_rule(text: str, found: Found) -> Rule:
    """Make a rule of the text of its file.

    Raises:
        ConfigError: it is not a rule; with file and line.
    """
    fields = parse_document(text, found.path, "an advice rule")
    reader = _Reader(Path(found.name).stem, fields)
    rule = Rule(
        id=reader.id,
        found=found,
        title=fields.required_text("title"),
        why=" ".join(fields.required_text("why").split()),
        for_each=reader.for_each,
        rests_on=fields.choice("rests_on", (SAMPLES, SLURM, DRIVER), SAMPLES),
        variables=reader.variables,
        figures=reader.figures,
        when=reader.expression(fields, "when", Kind.TRUTH),
        levels=reader.levels(),
        message=reader.required_text("message"),
        evidence=reader.required_text("evidence"),
        lost_gpu_hours=reader.expression(fields, "lost_gpu_hours", Kind.NUMBER),
        marks=reader.marks(),
        action=reader.text("action"),
        action_sbatch=reader.text("action_sbatch"),
        action_otherwise=reader.text("action_otherwise"),
        sources=fields.texts("sources"),
        silences=fields.texts("silences"),
        off=None if fields.flag("enabled", True) else switched_off(found),
    )
    fields.refuse_unknown()
    reader.refuse_unused()
    return rule


class _Reader:
    """Reads the expressions and texts of one rule, and keeps which of its names they use."""

    def __init__(self, rule_id: str, fields: Fields) -> None:
        self.id, self.fields = rule_id, fields
        self.used: set[str] = set()
        self.for_each = fields.choice("for_each", tuple(SUBJECTS), "job")
        self.names = dict(names_for(self.for_each))
        self.own: dict[str, Fields] = {}
        self.variables = self._variables()
        self.figures = self._figures()

    def _variables(self) -> dict[str, Value]:
        rows = self.fields.mapping("variables", f"variables of rule {self.id!r}")
        found: dict[str, Value] = {}
        for name, (value, place) in rows.values.items():
            read = rows.scalars(name) if isinstance(value, list) else rows.scalar(name)
            kind = kind_of(read)
            if kind not in (Kind.NUMBER, Kind.TRUTH, Kind.LIST):
                raise ConfigError(f"{name!r} must be a number, true, false or a list.", at=place)
            self._name(name, kind, rows)
            found[name] = read
        return found

    def _figures(self) -> dict[str, Expression]:
        rows = self.fields.mapping("figures", f"figures of rule {self.id!r}")
        found: dict[str, Expression] = {}
        for name in rows.values:
            expression = self.expression(rows, name)
            if expression is None:
                raise ConfigError(f"figure {name!r} is empty.", at=rows.at(name))
            self._name(name, expression.kind, rows)
            found[name] = expression
        return found

    def _name(self, name: str, kind: Kind, rows: Fields) -> None:
        if not name.isidentifier() or name in (*FUNCTIONS, *self.names, *TEXT_NAMES):
            raise ConfigError(
                f"{name!r} cannot be a name here: it is already used, "
                "or has other characters than letters, digits and _.",
                at=rows.at(name),
            )
        self.names[name] = kind
        self.own[name] = rows

    def expression(
        self, fields: Fields, key: str, kind: Kind | None = None, more: Names | None = None
    ) -> Expression | None:
        text = fields.text(key)
        if not text:
            return None
        what = f"'{key}' of rule {self.id!r}"
        names = {**self.names, **(more or {})}
        expression = read_expression(text, names, place=fields.at(key), what=what, kind=kind)
        self.used |= expression.names
        return expression

    def levels(self) -> dict[Severity, Expression]:
        rows = self.fields.mapping("levels", f"levels of rule {self.id!r}")
        found = {
            severity: expression
            for severity in Severity
            if (expression := self.expression(rows, severity, Kind.TRUTH))
        }
        rows.refuse_unknown()
        if not found:
            raise ConfigError(
                f"rule {self.id!r} needs 'levels:' with red, yellow or info and a condition.",
                at=self.fields.at("levels"),
            )
        return found

    def marks(self) -> Marks:
        """Read which devices and times it speaks of; of one device it is that one."""
        rows = self.fields.mapping("devices", f"devices of rule {self.id!r}")
        kinds = [kind for kind in DEVICES if kind in rows.values]
        if (rows.values and self.for_each != "job") or len(kinds) > 1:
            raise ConfigError(
                "'devices' is for rules for each job, and names either gpu or node.",
                at=self.fields.at("devices"),
            )
        kind = kinds[0] if kinds else self.for_each
        # What one device has, beside what the rule knows of the job.
        more = {name: found for name, found in names_for(kind).items() if name not in self.names}
        devices = self.expression(rows, kind, Kind.TRUTH, more) if kinds else None
        rows.refuse_unknown()
        timed = [key for key in ("since", "until") if self.fields.text(key)]
        if self.fields.text("during") and (kind == "job" or timed):
            wrong = "leave out 'since' and 'until'" if timed else "say which in 'devices'"
            raise ConfigError(
                f"'during' tells the times of one GPU or node: {wrong}.",
                at=self.fields.at("during"),
            )
        now = {**more, **({} if "now" in self.names else {"now": NOW.get(kind, {})})}
        return Marks(
            kind=kind,
            devices=devices,
            since=self.expression(self.fields, "since", Kind.NUMBER),
            until=self.expression(self.fields, "until", Kind.NUMBER),
            during=self.expression(self.fields, "during", Kind.TRUTH, now),
        )

    def required_text(self, key: str) -> Text:
        self.fields.required_text(key)
        return self.text(key) or Text(())

    def text(self, key: str) -> Text | None:
        text = self.fields.text(key)
        if not text:
            return None
        names: Names = {**self.names, **TEXT_NAMES}
        read = read_text(
            text, names, place=self.fields.at(key), what=f"'{key}' of rule {self.id!r}"
        )
        self.used |= read.names
        return read

    def refuse_unused(self) -> None:
        """Refuse a variable or figure nothing uses: changing it would change nothing."""
        for name, rows in self.own.items():
            if name not in self.used:
                raise ConfigError(f"{name!r} is not used in the rule.", at=rows.at(name))

"""What accounting lets a user do: accounts, partitions and QOS, as sacctmgr says."""

from dataclasses import dataclass

_COLUMNS = ("Cluster", "Account", "Partition", "QOS", "DefaultQOS")


@dataclass(frozen=True, kw_only=True, slots=True)
class Association:
    """One account a user may charge on one cluster; `partition` None is any."""

    cluster: str
    account: str
    partition: str | None
    qos: tuple[str, ...]
    default_qos: str | None


def associations_argv(user: str) -> tuple[str, ...]:
    """Return what asks for a user's associations."""
    columns = f"format={','.join(_COLUMNS)}"
    return ("sacctmgr", "-nP", "show", "assoc", f"user={user}", columns)


def default_account_argv(user: str) -> tuple[str, ...]:
    """Return what asks which account Slurm takes when a job names none."""
    return ("sacctmgr", "-nP", "show", "user", user, "format=DefaultAccount")


def parse_associations(text: str) -> tuple[Association, ...]:
    """Read `cluster|account|partition|qos,qos|default qos`; other lines are left out."""
    rows = (line.split("|") for line in text.splitlines())
    return tuple(
        Association(
            cluster=row[0],
            account=row[1],
            partition=row[2] or None,
            qos=tuple(word for word in row[3].split(",") if word),
            default_qos=row[4] or None,
        )
        for row in rows
        if len(row) == len(_COLUMNS) and row[1]
    )

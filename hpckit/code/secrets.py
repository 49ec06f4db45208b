"""Files that look like secrets, by their names: they are not kept, wherever they stand."""

_NAMES = frozenset((
    ".env", ".netrc", "_netrc", ".pgpass", ".git-credentials", "kaggle.json", ".pypirc", ".npmrc",
    ".htpasswd", ".my.cnf", ".vault-token", ".dockercfg", ".s3cfg", ".boto", "secrets.json",
    "secrets.toml",
))  # fmt: skip
_BEGINNINGS = (".env.", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "credentials", ".credentials")
_ENDINGS = (".pem", ".key", ".p12", ".pfx", ".ppk", ".jks", ".kdbx", ".keytab", ".gpg", ".ovpn")
_BOTH = (("service-account", ".json"), ("secrets.y", "ml"))
_FOLDERS = frozenset((".ssh", ".gnupg", ".aws", ".azure", ".kube"))
# Examples without a value, public halves, and programs that are only called so.
_HARMLESS = (".pub", ".example", ".sample", ".template", ".dist", ".py", ".pyi", ".md", ".rst")


def looks_secret(name: str, *, folder: bool = False) -> bool:
    """Say whether a file, or a folder, of this name is likely to hold a secret."""
    small = name.lower()
    if folder:
        return small in _FOLDERS
    secret = (
        small in _NAMES
        or small.startswith(_BEGINNINGS)
        or small.endswith(_ENDINGS)
        or any(small.startswith(first) and small.endswith(last) for first, last in _BOTH)
    )
    return secret and not small.endswith(_HARMLESS)

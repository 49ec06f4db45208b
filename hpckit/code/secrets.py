"""Files that look like secrets, by their names: they are not kept, wherever they stand."""

import fnmatch
import re

_NAMES = (
    *(".env", ".env.*", "*.pem", "*.key", "*.p12", "*.pfx", "*.ppk", "*.jks", "*.kdbx"),
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", ".netrc", "_netrc", ".pgpass"),
    *("credentials*", ".credentials*", ".git-credentials", "kaggle.json", ".pypirc", ".npmrc"),
    *(".htpasswd", ".my.cnf", ".vault-token", ".dockercfg", "service-account*.json", ".s3cfg"),
    *("*.keytab", "secrets.y*ml", "secrets.json", "secrets.toml", ".boto", "*.gpg", "*.ovpn"),
)
_FOLDERS = frozenset((".ssh", ".gnupg", ".aws", ".azure", ".kube"))
# Examples without a value, public halves, and programs that are only called so.
_HARMLESS = r".*\.(?:pub|example|sample|template|dist|py|pyi|md|rst)"
_SECRET = re.compile("|".join(f"(?:{fnmatch.translate(name)})" for name in _NAMES))


def looks_secret(name: str, *, folder: bool = False) -> bool:
    """Say whether a file, or a folder, of this name is likely to hold a secret."""
    small = name.lower()
    if folder:
        return small in _FOLDERS
    return _SECRET.match(small) is not None and re.fullmatch(_HARMLESS, small) is None

"""jobstats' record of a job, packed as its authors' epilog packs it: for the tests that read it."""

import base64
import gzip
import json
from collections.abc import Mapping
from typing import Any


def encode(record: Mapping[str, Any]) -> str:
    """Return a record as an AdminComment; the same record always gives the same text."""
    text = json.dumps(record, separators=(",", ":"), sort_keys=True).encode()
    return "JS1:" + base64.b64encode(gzip.compress(text, mtime=0)).decode()

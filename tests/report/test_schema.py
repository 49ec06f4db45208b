import os

from hpckit.stats.document import SCHEMA_FILE
from tests.report.schema import Maker


def test_the_published_schema_is_that_of_the_values() -> None:
    """HPCKIT_UPDATE_GOLDEN=1 writes it."""
    made = Maker().document()
    if os.environ.get("HPCKIT_UPDATE_GOLDEN"):
        SCHEMA_FILE.write_text(made)
    assert SCHEMA_FILE.read_text() == made

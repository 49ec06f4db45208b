import json
import os
from typing import Any

import pytest

from hpckit import report_schema
from hpckit.stats.document import json_schema
from tests.report.made import REPORT_SCHEMA_FILE, SCHEMA_FILE


def written(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2) + "\n"


def test_the_published_schema_is_that_of_the_values() -> None:
    """HPCKIT_UPDATE_GOLDEN=1 writes it."""
    made = written(json_schema())
    if os.environ.get("HPCKIT_UPDATE_GOLDEN"):
        SCHEMA_FILE.write_text(made)
    assert SCHEMA_FILE.read_text() == made


def test_the_published_schema_of_reports_is_that_of_the_values() -> None:
    made = written(report_schema())
    if os.environ.get("HPCKIT_UPDATE_GOLDEN"):
        REPORT_SCHEMA_FILE.write_text(made)
    assert REPORT_SCHEMA_FILE.read_text() == made


# What other programs may read, as agreed with them; more keys may come, none may go.
AGREED = {
    "": "job_id run_id user account partition state nodes gpus elapsed_s requested sources"
    " summary advice per_node per_gpu timeseries_file jobstats",
    "Summary": "gpu_utilization_percent gpu_memory_used_percent gpu_memory_peak_bytes"
    " sm_active_percent power_watts_mean energy_joules cpu_efficiency_percent"
    " memory_efficiency_percent memory_peak_bytes gpu_hours gpu_hours_idle samples",
    "GpuUse": "host index uuid name utilization_percent memory_used_percent memory_peak_bytes"
    " memory_total_bytes power_watts_mean energy_joules idle_percent",
    "Advice": "id severity message evidence action",
}


@pytest.mark.parametrize("value", AGREED)
def test_no_agreed_key_has_gone(value: str) -> None:
    schema = json.loads(SCHEMA_FILE.read_text())
    described = schema["$defs"][value] if value else schema
    assert set(AGREED[value].split()) <= set(described["required"])

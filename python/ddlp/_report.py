"""The figures of a run."""

from __future__ import annotations

import html
from typing import Any


class Report(dict[str, Any]):
    """The figures of a run, as `ddlp run --json` writes them. A notebook shows the most important ones as a table."""

    def _repr_html_(self) -> str:
        rows = [
            ("images", self["images"]),
            ("images/s", f"{self['images_per_s']:.0f}"),
            ("seconds", f"{self['seconds']:.2f}"),
            ("seconds waited for batches", f"{self['consumer_wait_s']:.2f}"),
            *((f"images by {prong['name']}", prong["images"]) for prong in self["prongs"]),
            ("corrupt samples", len(self["corrupt"])),
            ("faults", len(self["faults"])),
            *(("note", note) for note in self["notes"]),
        ]
        cells = (f"<tr><td>{html.escape(name)}</td><td>{html.escape(str(value))}</td></tr>" for name, value in rows)
        return f"<table>{''.join(cells)}</table>"

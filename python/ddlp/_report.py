"""The figures of a run."""

from __future__ import annotations

import html
import json
from typing import Any

from . import _ddlp


class Report(dict[str, Any]):
    """The figures of a run, as `ddlp run --json` writes them. A notebook shows them as the page of `to_html`."""

    def to_html(self) -> str:
        """Returns the report as one HTML page, as `ddlp run --report` writes it. The page loads nothing from elsewhere.

        Raises ConfigurationError if figures were removed or have other types.
        """
        return _ddlp.report_page(json.dumps(self))

    def _repr_html_(self) -> str:
        # The page has scripts and styles of its own, which a notebook's page does not get to see.
        return (
            f'<iframe srcdoc="{html.escape(self.to_html())}" sandbox="allow-scripts" title="Report of a run" '
            'style="width: 100%; height: 900px; border: 0"></iframe>'
        )

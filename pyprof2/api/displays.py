"""How results show themselves in a notebook: by functions that are registered by name.

Reports are made of runs, so a run imports none of them: who shows what is registered where the
package is put together, and is imported when something is shown.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_SHOWN_BY: dict[str, str] = {}


def register(**shown_by: str) -> None:
    """Name the function, or class, that shows each: `module.name`, imported at first use."""
    _SHOWN_BY.update(shown_by)


def shown(what: str, result: Any) -> Any:
    """Return what the function registered for `what` makes of a result."""
    module, _, name = _SHOWN_BY[what].rpartition(".")
    return getattr(import_module(module), name)(result)


class Displayed:
    """A result that a notebook shows as HTML, by what is registered for the name of its class."""

    def _repr_html_(self) -> str:
        html: str = shown(type(self).__name__, self)
        return html


class Summary(Displayed, dict[str, Any]):
    """The totals of a run, which a notebook shows as a table."""


class Pictures(Protocol):
    """The pictures of a run, figures of plotly: see `pyprof2.reports.notebook_plots.Plots`."""

    def roofline(self) -> Figure:
        """Return a dot for each signature under the roofs of the device."""

    def timeline(self, step: int | None = None, rank: int | None = None) -> Figure:
        """Return what each stream of a rank did in a step, and why devices were idle."""

    def steps(self) -> Figure:
        """Return what the device did in each step."""

    def ranks(self, measure: str = "window_ns") -> Figure:
        """Return each step of each rank as a field of a heat map."""

    def rank_parts(self) -> Figure:
        """Return the parts that each rank's time is made of."""

    def idle(self) -> Figure:
        """Return the idle time of all devices by cause."""

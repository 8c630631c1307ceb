"""Delivery of the records of a frame that no boundary calls.

Such is ``nn.Sequential``, or a function of the user's that calls a patched model. Dynamo replays
stores to attributes when the graph has run, so the trace ends with one to ``OUTLET.records``.
"""

from __future__ import annotations

from typing import Final

from bcmend.delivery.records import Buffer, deliver
from bcmend.dynamo import plain_python


class _Outlet:
    """Delivers what is assigned to ``records``."""

    @property
    def records(self) -> Buffer:
        return []

    @records.setter
    def records(self, buffer: Buffer) -> None:
        plain_python.run(deliver, buffer)


OUTLET: Final = _Outlet()
plain_python.have_dynamo_skip(vars(_Outlet)["records"].fset)

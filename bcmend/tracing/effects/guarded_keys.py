"""Guards on the keys of dictionaries that Dynamo has no reason of its own to make.

``popitem`` takes what is last, and Dynamo writes all that is left back at the end of the call. That
is right only for a dictionary with the keys that were traced.
"""

from __future__ import annotations

from typing import Final

from bcmend.dynamo import compat, handlers
from bcmend.dynamo.handlers import PASS, Answer, Call
from bcmend.dynamo.models import containers, methods

_PURPOSE: Final = "keys that a call depends on"


def _call_of_dictionary(call: Call) -> Answer:
    if call.args[:1] == ("popitem",):
        containers.guard_keys(containers.contents_of(call.owner) or call.owner)
    return PASS


for _kind in (compat.ConstDictVariable, compat.OrderedDictVariable):
    handlers.method(_kind, methods.CALL_METHOD, _PURPOSE)(_call_of_dictionary)

"""What rewritten bytecode reaches through the global ``@bcmend``."""

from __future__ import annotations

from builtins import UnboundLocalError as UnboundLocalError

from bcmend.delivery import own_frames, read_predicates
from bcmend.delivery.own_frames import leave_out as leave_out
from bcmend.dynamo import plain_python
from bcmend.tracing.entry import declarations as declarations
from bcmend.tracing.entry.boundary import run as run
from bcmend.tracing.entry.boundary import run_in_place as run_in_place
from bcmend.tracing.entry.primitives import branch as branch
from bcmend.tracing.entry.primitives import data_dependent as data_dependent
from bcmend.tracing.entry.primitives import entered as entered
from bcmend.tracing.entry.primitives import guard as guard
from bcmend.tracing.entry.primitives import known as known
from bcmend.tracing.entry.primitives import nothing as nothing
from bcmend.tracing.entry.primitives import record as record
from bcmend.tracing.entry.primitives import recording as recording
from bcmend.tracing.entry.primitives import runs_iteration as runs_iteration
from bcmend.tracing.entry.primitives import split as split
from bcmend.tracing.entry.primitives import unbound as unbound
from bcmend.tracing.entry.primitives import undecided as undecided

plain_python.have_dynamo_skip(own_frames, read_predicates)

"""Grad mode, autocast and filters of warnings where a record is made.

A record is delivered under the settings of the caller. Dynamo guards that a frame is entered under
the settings of its trace, so a record carries what is different from those. Filters of warnings
hold in a block of ``warnings.catch_warnings``, which the records in it enter again, and leave
(``delivery.warning_blocks``).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bcmend.delivery import warning_blocks
from bcmend.delivery.settings import Settings, call_under
from bcmend.dynamo import compat, frames, hooks, values
from bcmend.dynamo.models import methods, translators
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.values import Value, constant, items_in
from bcmend.knowledge.callable_names import FILTER_FUNCTIONS, WARNING_FUNCTIONS
from bcmend.tracing.output import record_builder
from bcmend.tracing.output.record_builder import Draft, Kind
from bcmend.tracing.search.falsified import falsify
from bcmend.tracing.sites import capture_mode
from bcmend.tracing.sites.site_table import LiveSite

#: Device, and Dynamo's names of its two settings.
_AUTOCAST: Final = (
    ("cpu", "autocast_cpu_enabled", "autocast_cpu_dtype"),
    ("", "autocast_enabled", "autocast_gpu_dtype"),
)


def as_of_now(tx: compat.Tracer, action: Value, inputs: Value) -> tuple[Value, Value]:
    """Return action and inputs that run ``action(*inputs)`` under the present settings."""
    changed = _changed(tx.output)
    if not changed:
        return action, inputs
    rows = compat.TupleVariable([compat.TupleVariable(list(map(constant, row))) for row in changed])
    return values.function_of(tx, call_under), compat.TupleVariable([rows, action, inputs])


def autocast_is_as_entered(output: compat.OutputGraph) -> bool:
    """Return whether autocast is now as it was when the frame was entered."""
    return all(device == "grad" for device, _, _ in _changed(output))


def _changed(output: compat.OutputGraph) -> Settings:
    """Return what is not as it was when the frame was entered: device (or "grad"), is on, dtype."""
    entered = output.tracing_context.global_context.global_state
    present: dict[str, Any] = {}
    output.save_global_state(present)
    found = []
    if present["grad_enabled"][1] is not entered["grad_enabled"][1]:
        found.append(("grad", present["grad_enabled"][1], ""))
    for device, *names in _AUTOCAST:
        is_on, dtype = (present[name][1] for name in names)
        if (is_on, dtype) != tuple(entered[name][1] for name in names):
            found.append((device, is_on, str(dtype).removeprefix("torch.")))
    return tuple(found)


# Blocks of warnings


@dataclass(frozen=True, slots=True)
class _Entered:
    """A block that records enter; ``site`` is of the first of them."""

    block: compat.CatchWarningsCtxManagerVariable
    number: int
    site: LiveSite


_NUMBERS: Final = itertools.count()
_ENTERED: Final[Slot[dict[int, _Entered]]] = Slot(dict, rolls_back=True)
_GIVES_WHAT_IS_WARNED: Final = "a block of warnings.catch_warnings(record=True) is open"
_MAY_BREAK: Final = "a block of warnings.catch_warnings is open, in which the graph may break"


def within_blocks(
    tx: compat.Tracer, site: LiveSite, action: Value, inputs: Value, statement: Any
) -> tuple[Value, Value]:
    """Return action and inputs of output that run ``action(*inputs)`` in the blocks around it.

    ``statement`` is the function of the program that has the statement.

    Raises:
        Falsified: the statement warns, and the block keeps warnings, or the graph may break in it;
            or it has warnings raised, which a handler of the program may await.
    """
    blocks = list(_blocks_around(tx))[::-1]
    if _has_warnings_raised(statement, inputs, blocks):
        falsify(site.unmendable("cannot-snapshot", "a filter makes an error of warnings"))
    if not blocks:
        return action, inputs
    may_break = not capture_mode.in_mended_code(tx)
    if may_break or any(map(_keeps_warnings, blocks)):
        if not _warns(statement):
            return action, inputs
        detail = _MAY_BREAK if may_break else _GIVES_WHAT_IS_WARNED
        falsify(site.unmendable("cannot-snapshot", detail))
    rows = compat.TupleVariable([_row_of(tx, site, each) for each in blocks])
    within = compat.TupleVariable([rows, action, inputs])
    return values.function_of(tx, warning_blocks.call_within), within


def _blocks_around(tx: compat.Tracer) -> Iterator[Any]:
    """Yield the blocks of warnings that are open, the innermost first."""
    for frame in frames.outwards(tx):
        for each in reversed(frame.stack):  # what leaves a block lies there
            block = translators.context_left_by(each)
            if isinstance(block, compat.CatchWarningsCtxManagerVariable):
                yield block


def _keeps_warnings(block: Any) -> bool:
    given = block.catch_warnings_args
    is_kept = "record" in given and bool(given["record"].as_python_constant())
    return is_kept or "module" in given


def _has_warnings_raised(statement: Any, inputs: Value, blocks: Sequence[Any]) -> bool:
    """Return whether a statement sets a filter that makes an error of warnings, or warns in one."""
    code = statement.get_code()
    if FILTER_FUNCTIONS.intersection(code.co_names):
        given = [each.realize() for each in items_in(inputs.realize()) or ()]
        return _ERROR in code.co_consts or any(map(_is_error, given))
    actions = (each.catch_warnings_args.get("action") for each in blocks)
    return _warns(statement) and any(each is not None and _is_error(each) for each in actions)


_ERROR: Final = "error"


def _is_error(value: Value) -> bool:
    return value.is_python_constant() and value.as_python_constant() == _ERROR


def _warns(statement: Any) -> bool:
    called = statement.get_code().co_names
    return bool((WARNING_FUNCTIONS | FILTER_FUNCTIONS).intersection(called))


def _row_of(tx: compat.Tracer, site: LiveSite, block: Any) -> Value:
    entered = _ENTERED.of(tx.output)
    key = id(block)
    if key not in entered:
        entered[key] = _Entered(block, next(_NUMBERS), site)
    given = block.catch_warnings_args.items()
    arguments: list[Value] = [compat.TupleVariable([constant(name), one]) for name, one in given]
    number = constant(entered[key].number)
    return compat.TupleVariable([number, compat.TupleVariable(arguments)])


@hooks.around(
    compat.ContextWrappingVariable, methods.EXIT, "the end of a block of warnings", gate=None
)
def _exit(inner: Any, block: Any, tx: compat.Tracer, *args: Value) -> Value:
    found: Value = inner(block, tx, *args)
    entered = _ENTERED.of(tx.output).pop(id(block), None)
    if entered is not None:
        number = compat.TupleVariable([constant(entered.number)])
        leave = values.function_of(tx, warning_blocks.leave)
        record_builder.append(tx, Draft(entered.site, leave, None, number, Kind.OUTPUT))
    return found

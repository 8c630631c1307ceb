"""Texts of which parts are known to the data alone: put together, and joined.

Dynamo knows such a text as a format with values that it fills in when the graph has run. One text
put behind another is a format of both; so is a list of them with a text in between. The values are
those of the moment: what is changed in place later is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from torch._dynamo import graph_break_hints
from torch._dynamo.exc import unimplemented
from torch._dynamo.symbolic_convert import InstructionTranslatorBase
from torch._dynamo.utils import unpack_iterable
from torch._dynamo.variables import BuiltinVariable, ConstantVariable, TupleVariable
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.misc import StringFormatVariable
from torch._dynamo.variables.tensor import SymNodeVariable

from bcmend.runtime import frames, sinks, sites
from bcmend.runtime.sites import LiveSite
from bcmend.runtime.substitution import is_patched

__all__ = ["install"]


def _is_text(value: VariableTracker) -> bool:
    return isinstance(value, StringFormatVariable) or (
        type(value) is ConstantVariable and type(value.value) is str
    )


def _in_a_row(texts: Sequence[VariableTracker], between: str = "") -> VariableTracker:
    """Return the text of ``texts`` one after another.

    Each is a value of the whole, which keeps the numbers and names in their formats apart.
    """
    known = between.replace("{", "{{").replace("}", "}}")
    return StringFormatVariable.create(known.join(["{}"] * len(texts)), list(texts), {})


_DYNAMOS_CONCATENATION: Final = VariableTracker.sq_concat_impl


def _concatenated(text: VariableTracker, tx: Any, other: VariableTracker) -> VariableTracker:
    """Model ``text + other``."""
    other = other.realize()
    if not (_is_text(text) and _is_text(other)):
        return _DYNAMOS_CONCATENATION(text, tx, other)
    return _in_a_row([text, other])


_DYNAMOS_METHOD: Final = ConstantVariable.call_method


def _call_method(
    variable: ConstantVariable,
    tx: Any,
    name: str,
    arguments: list[VariableTracker],
    keywords: dict[str, VariableTracker],
) -> VariableTracker:
    if name == "join" and type(variable.value) is str and len(arguments) == 1 and not keywords:
        texts = [each.realize() for each in unpack_iterable(tx, arguments[0])]
        if all(map(_is_text, texts)):
            return _in_a_row(texts, variable.value)
        arguments = [TupleVariable(texts)]  # an iterator has been used up by now
    return _DYNAMOS_METHOD(variable, tx, name, arguments, keywords)


_DYNAMOS_FORMAT: Final = InstructionTranslatorBase._format_value


def _format_value(self: Any, form: VariableTracker, flags: int) -> None:
    """Model ``f"{number}"`` with a number that is given to the frame.

    Dynamo puts that text off, and takes it for what comes from the same place: the number itself.
    """
    number = self.stack[-1].realize()
    if not (isinstance(number, SymNodeVariable) and number.source is not None and is_patched(self)):
        _DYNAMOS_FORMAT(self, form, flags)
        return
    known = number.evaluate_expr()
    converted = _CONVERSIONS[flags & 3](known)
    self.pop()
    self.push(ConstantVariable.create(format(converted, form.as_python_constant())))


_DYNAMOS_FORMATTING: Final = BuiltinVariable.call_format


def _call_format(
    self: BuiltinVariable, tx: Any, form: VariableTracker, *given: Any, **named: Any
) -> VariableTracker:
    """Model ``form.format(...)``, which Dynamo makes a text of when the graph has run."""
    if is_patched(tx) and not tx.export:  # an exported program writes nothing
        # In no report, since no code was rewritten.
        site = sites.being_traced(tx, frames.resumed(tx.f_code), "text", "text")
        if not site.active:
            unimplemented(
                gb_type="bcmend: a text of what is changed later",
                context=site.detail,
                explanation="The text would be made when the graph has run.",
                hints=[*graph_break_hints.FUNDAMENTAL],
            )
        given = tuple(_as_of_now(tx, site, each) for each in given)
        named = {name: _as_of_now(tx, site, each) for name, each in named.items()}
    return _DYNAMOS_FORMATTING(self, tx, form, *given, **named)


def _as_of_now(tx: Any, site: LiveSite, value: VariableTracker) -> VariableTracker:
    """Return what a text has of ``value``, whatever is changed later."""
    try:
        return sinks.snapshot(tx, site, value)
    except sinks.CannotSnapshot:
        return value


#: By the lowest bits of the argument of FORMAT_VALUE.
_CONVERSIONS: Final[tuple[Callable[[Any], Any], ...]] = (lambda value: value, str, repr, ascii)


def install() -> None:
    """Let Dynamo ask here first."""
    for kind in (StringFormatVariable, ConstantVariable):
        kind.sq_concat_impl = _concatenated  # type: ignore[assignment, method-assign]
    ConstantVariable.call_method = _call_method  # type: ignore[assignment, method-assign]
    InstructionTranslatorBase._format_value = _format_value  # type: ignore[assignment, method-assign]
    BuiltinVariable.call_format = _call_format  # type: ignore[assignment, method-assign]

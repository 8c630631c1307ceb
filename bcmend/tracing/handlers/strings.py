"""Texts with data-dependent parts: concatenated, joined and formatted.

Dynamo models such a text as a format with values that it fills in when the graph has run. One text
behind another is a format of both; so is a list of them with a text in between. The values are
those of the moment: what is changed in place later is copied.

The character at a data-dependent place of a known text is formatted of its code, which the graph
reads out of a table of all codes.

What a regular expression finds in a known text is known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from bcmend.dynamo import compat, frames, handlers, hooks
from bcmend.dynamo.handlers import PASS, Answer, Call
from bcmend.dynamo.models import containers, methods, objects
from bcmend.dynamo.models import texts as models_of_texts
from bcmend.dynamo.values import (
    Value,
    constant,
    example_of,
    function_of,
    is_symbolic_int,
    is_unbacked,
    with_known_number,
)
from bcmend.tracing.indexing import item_reads
from bcmend.tracing.numbers import scalars
from bcmend.tracing.output import object_snapshot, record_builder
from bcmend.tracing.sites import capture_mode, site_table
from bcmend.tracing.sites.refusal import Refusal, attempt
from bcmend.tracing.sites.site_table import LiveSite


def _is_text(value: Value) -> bool:
    return isinstance(value, compat.StringFormatVariable) or (
        type(value) is compat.ConstantVariable and type(value.value) is str
    )


def _joined(texts: Sequence[Value], between: str = "") -> Value:
    """Return ``between.join(texts)``.

    Each is a value of the whole, which keeps the numbers and names in their formats apart.
    """
    known = between.replace("{", "{{").replace("}", "}}")
    return models_of_texts.text_of(known.join(["{}"] * len(texts)), texts, {})


_PURPOSE: Final = "texts with data-dependent parts"


def _concatenated(call: Call) -> Answer:
    """Answer ``text + other``."""
    text, other = call.owner, call.args[0].realize()
    return _joined([text, other]) if _is_text(text) and _is_text(other) else PASS


for _kind in (compat.StringFormatVariable, compat.ConstantVariable):
    handlers.method(_kind, methods.CONCAT, _PURPOSE)(_concatenated)


def _character(call: Call) -> Answer:
    """Answer ``text[number]`` for a number of the graph."""
    tx, text, place = call.tx, call.owner, scalars.as_tensor(call.tx, call.args[0].realize())
    is_known = type(text) is compat.ConstantVariable and type(text.value) is str
    if not (is_known and text.value and _is_place(place) and capture_mode.in_mended_code(tx)):
        return PASS
    if is_symbolic_int(place) and not is_unbacked(place):
        number: Any = place.sym_num
        if not (number >= -len(text.value) and number < len(text.value)):
            found: Answer = item_reads.part_at(tx, text, constant(place.evaluate_expr()))
            return found  # it raises
    codes = containers.new_list(constant(ord(each)) for each in text.value)
    kind = {"dtype": constant(torch.int64), "device": constant("cpu")}
    table = function_of(tx, torch.tensor).call_function(tx, [codes], kind)
    code = scalars.take(tx, item_reads.part_at(tx, table, place))
    return PASS if code is None else models_of_texts.text_of("{:c}", [code], {})


def _is_place(value: Value) -> bool:
    if type(value) is not compat.TensorVariable:
        return is_symbolic_int(value)
    return example_of(value).dim() == 0 and example_of(value).dtype is torch.int64


handlers.method(compat.ConstantVariable, methods.SUBSCRIPT, _PURPOSE)(_character)


@hooks.around(compat.ConstantVariable, methods.CALL_METHOD, _PURPOSE)
def _call_method(
    inner: Any, variable: Any, tx: compat.Tracer, name: str, args: list[Any], kwargs: Any
) -> Any:
    """Model ``text.join(...)``, and other methods of texts that are given symbolic numbers."""
    if name == "join" and type(variable.value) is str and len(args) == 1 and not kwargs:
        texts = [each.realize() for each in compat.unpack_iterable(tx, args[0])]
        if all(map(_is_text, texts)):
            return _joined(texts, variable.value)
        args = [compat.TupleVariable(texts)]  # an iterator has been used up by now
    elif type(variable.value) in (str, bytes):
        args = [with_known_number(each.realize()) for each in args]
        kwargs = {key: with_known_number(each.realize()) for key, each in kwargs.items()}
    return inner(variable, tx, name, args, kwargs)


_FOUND: Final = (("groupdict", re.Match), ("finditer", re.Pattern))


@hooks.around(compat.ConstantLikeVariable, methods.CALL_METHOD, "what regular expressions find")
def _call_expression(
    inner: Any, variable: Any, tx: compat.Tracer, name: str, args: list[Any], kwargs: Any
) -> Any:
    """Model ``match.groupdict()`` and ``pattern.finditer(text)``.

    Dynamo calls such methods while it traces, and takes a literal or one match for a result.
    """
    is_known = all(each.is_python_constant() for each in (*args, *kwargs.values()))
    if is_known and (name, type(variable.value)) in _FOUND:
        known = [each.as_python_constant() for each in args]
        named = {key: each.as_python_constant() for key, each in kwargs.items()}
        try:
            found = getattr(variable.value, name)(*known, **named)
        except TypeError:  # it is called wrongly
            return inner(variable, tx, name, args, kwargs)
        if isinstance(found, dict):
            return compat.VariableTracker.build(tx, found)
        matches = containers.new_list(map(compat.ConstantLikeVariable, found))
        return compat.VariableTracker.build(tx, iter).call_function(tx, [matches], {})
    return inner(variable, tx, name, args, kwargs)


@hooks.around(compat.InstructionTranslatorBase, methods.FORMAT_VALUE, _PURPOSE, gate=hooks.first)
def _format_value(inner: Any, self: Any, form: Value, flags: int) -> None:
    """Model ``f"{number}"`` with a number that is given to the frame, or computed of such.

    Dynamo defers that text, and takes it for what comes from the same source: the number itself. Of
    one that was computed it gives a format to the text, to which that is another, or none.
    """
    number = self.stack[-1].realize()
    if not isinstance(number, compat.SymNodeVariable) or not _is_known(number, form):
        inner(self, form, flags)
        return
    converted = _CONVERSIONS[flags & 3](number.evaluate_expr())
    self.pop()
    self.push(compat.ConstantVariable.create(format(converted, form.as_python_constant())))


def _is_known(number: compat.SymNodeVariable, form: Value) -> bool:
    """Return whether the text of a number is made at once, under a guard."""
    has_form = bool(form.as_python_constant())
    return number.source is not None or (has_form and not is_unbacked(number))


@hooks.around(compat.BuiltinVariable, methods.CALL_FORMAT, _PURPOSE)
def _call_format(
    inner: Any, self: Any, tx: compat.Tracer, form: Any, *given: Any, **named: Any
) -> Any:
    """Model ``form.format(...)``, which Dynamo makes a text of when the graph has run.

    It takes ``format(value, form)`` for ``"{value}".format(form)``, which has no such format.
    """
    if self.fn is format and len(given) < 2 and not named:
        return _formatted(tx, form, *(each.realize() for each in given))
    if not tx.export:  # an exported program writes nothing
        # In no report, since no code was rewritten.
        site = site_table.site_being_traced(tx, frames.resumed(tx.f_code), "text", "text")
        if not site.active:
            handlers.break_graph(
                "a text of what is changed later",
                site.detail,
                "The text would be made when the graph has run.",
            )
        object_snapshot.of_text(tx, site, (*given, *named.values()))
        given = tuple(_as_of_now(tx, site, each) for each in given)
        named = {name: _as_of_now(tx, site, each) for name, each in named.items()}
    return inner(self, tx, form, *given, **named)


def _formatted(tx: Any, value: Value, form: Value | None = None) -> Value:
    """Return ``f"{value:{form}}"``."""
    if form is None:
        form = constant("")
    if not form.is_python_constant():
        handlers.break_graph(
            "a format that is not known", f"format({value}, {form})", "It depends on the data."
        )
    tx.push(value)
    getattr(tx, methods.FORMAT_VALUE)(form, 0)
    found: Value = tx.pop()
    return found


@handlers.method(compat.BuiltinVariable, methods.CALL_STR, _PURPOSE, place=1)
@handlers.method(compat.BuiltinVariable, methods.CALL_REPR, _PURPOSE)
def _call_text(call: Call) -> Answer:
    """Model ``str(number)`` and ``repr(number)``, which are what a format without a form gives.

    From Python 3.13 on ``f"{number!r}"`` calls ``repr``. Of a number that is given to the frame, or
    computed of such, the text would hold for that one alone: each turn of a loop that breaks the
    graph would be compiled.
    """
    value = call.args[0].realize() if len(call.args) == 1 and not call.kwargs else None
    if not isinstance(value, compat.SymNodeVariable) or not is_unbacked(value):
        return PASS
    return _formatted(call.tx, value)


def _as_of_now(tx: compat.Tracer, site: LiveSite, value: Value) -> Value:
    """Return ``value`` as a text shows it, whatever is changed later."""
    copied = attempt(lambda: record_builder.snapshot(tx, site, value))
    return value if isinstance(copied, Refusal) else copied


@hooks.around(
    compat.HashableTracker,
    methods.MAKE_KEY,
    _PURPOSE,
    gate=lambda *_: compat.translator_tls.current_tx,
)
def _key(inner: Any, self: Any, value: Any) -> None:
    """Model a key of a dictionary, or an item of a set.

    Dynamo compares keys by what they are, and takes each text for another one. Numbers are
    specialized in it, as in keys that are numbers.
    """
    inner(self, _known(value.realize()) if _has_text(value) else value)


def _has_text(value: Any) -> bool:
    """Return whether a key is a text with data-dependent parts, or a tuple that has one."""
    if not value.is_realized():  # Dynamo hashes it by what it stands for
        return objects.is_a_text_to_be(value)
    if type(value.realize()) is compat.TupleVariable:
        return any(map(_has_text, value.realize().items))
    return isinstance(value, compat.StringFormatVariable)


def _known_text(text: Any) -> Value:
    """Return a text of which all values are known."""
    known = models_of_texts.text_of(
        models_of_texts.template_of(text),
        [_known(each.realize()) for each in models_of_texts.arguments_of(text)],
        {
            name: _known(each.realize())
            for name, each in models_of_texts.named_arguments_of(text).items()
        },
    )
    if isinstance(known, compat.StringFormatVariable):
        handlers.break_graph(
            "a text as a key",
            models_of_texts.template_of(text),
            "Which key it is depends on the data.",
        )
    return known


def _known(value: Any) -> Value:
    if isinstance(value, compat.StringFormatVariable):
        return _known_text(value)
    if _has_text(value):
        return compat.TupleVariable([_known(each.realize()) for each in value.items])
    known: Value = with_known_number(value)
    return known


#: By the lowest bits of the argument of FORMAT_VALUE.
_CONVERSIONS: Final[tuple[Callable[[Any], Any], ...]] = (lambda value: value, str, repr, ascii)

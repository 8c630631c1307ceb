"""What a call depends on in dictionaries, where Dynamo guards too little or takes too much.

``popitem`` takes what is last, and Dynamo writes all that is left back at the end of the call. That
is right only for a dictionary with the keys that were traced.

A proxy of a dictionary, as the parameters of an ``inspect.Signature``, shows what the dictionary
holds. Dynamo does not know which dictionary that is, and stops where the call has changed any; of
one that the call has not changed the proxy shows what it did before.
"""

from __future__ import annotations

import gc
import operator
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import torch

from bcmend.dynamo import compat, handlers, hooks, object_guards
from bcmend.dynamo.handlers import PASS, Answer, Call
from bcmend.dynamo.models import containers, methods
from bcmend.knowledge import static_lookup
from bcmend.tracing.speculation import iterators

_PURPOSE: Final = "keys that a call depends on"


def _call_of_dictionary(call: Call) -> Answer:
    if call.args[:1] == ("popitem",):
        containers.guard_keys(call.owner)
    if call.args[:1] in (("popitem",), ("move_to_end",)):
        last = call.args[2].get("last")
        if last is not None and not last.is_python_constant():  # which Dynamo takes for True
            handlers.break_graph("unknown end of a dictionary", "", "The end depends on data.")
    return PASS


for _kind in (compat.ConstDictVariable, compat.OrderedDictVariable):
    handlers.method(_kind, methods.CALL_METHOD, _PURPOSE)(_call_of_dictionary)


def _call_backwards(
    inner: Any, owner: Any, tx: compat.Tracer, name: str, args: Any, kwargs: Any
) -> Any:
    found = inner(owner, tx, name, args, kwargs)
    if name == "__reversed__":
        iterators.note_backwards(tx, found, containers.gone_over_by(owner).items)
    return found


hooks.around(compat.DictViewVariable, methods.CALL_METHOD, iterators.BACKWARDS)(_call_backwards)
for _kind in (compat.ConstDictVariable, compat.OrderedDictVariable):
    hooks.around(_kind, methods.CALL_METHOD, iterators.BACKWARDS, place=1)(_call_backwards)


@hooks.around(
    compat.ConstDictVariable,
    methods.GUARD_KEYS,
    "the order of keys",
    gate=lambda *_: compat.translator_tls.current_tx,
)
def _guard_keys(install: Any, dictionary: Any) -> None:
    """Require keys in their order: ``{**d}`` and ``d.copy()`` show it, where torch takes any."""
    install(dictionary)
    if dictionary.source is not None:
        compat.translator_tls.current_tx.output.guard_on_key_order.add(dictionary.source)


_OF_OBJECTS: Final = "the attributes that an object has"
#: What each module has from its construction on.
_OF_MODULES: Final = frozenset(vars(torch.nn.Module()))


@hooks.around(
    compat.DunderDictVariable,
    methods.GUARD_KEYS,
    _OF_OBJECTS,
    gate=lambda *_: compat.translator_tls.current_tx,
)
def _guard_attributes(install: Any, attributes: Any) -> None:
    """Require the attributes of an object in their order where it is asked for all of them.

    torch requires none, since it knows what the call stores; others may store between calls.
    """
    install(attributes)
    _require_answer(attributes, list, "the same attributes")


@hooks.around(compat.DunderDictVariable, methods.GUARD_CONTAINS, _OF_OBJECTS)
def _guard_attribute(install: Any, attributes: Any, tx: compat.Tracer, args: Any) -> None:
    """Require that an object has an attribute, or has not, where that is asked."""
    install(attributes, tx, args)
    key = args[0].realize()
    name = key.as_python_constant() if key.is_python_constant() else None
    if not isinstance(name, str) or name in _OF_MODULES:
        return

    _require_answer(attributes, lambda held: name in held, f"whether there is {name}")


def _require_answer(
    attributes: Any, ask: Callable[[Mapping[str, object]], object], text: str
) -> None:
    """Require that the attributes of an object from before answer what is asked as they do now."""
    if not isinstance(attributes.source, compat.AttrSource):
        return
    source, output = attributes.source.base, compat.translator_tls.current_tx.output
    value = output.resolve_source_value(source)
    now = ask(static_lookup.dictionary(value))

    def holds(other: object) -> bool:
        return ask(static_lookup.dictionary(other)) == now

    object_guards.require(output, source, value, holds, text)


#: What asks a dictionary for its keys, where torch requires none of it.
_ASKS: Final = (set, frozenset, list, tuple, operator.not_)


@hooks.around(compat.BuiltinVariable, methods.CALL_FUNCTION, _PURPOSE, place=4)
def _asked(inner: Any, called: Any, tx: compat.Tracer, args: Any, kwargs: Any) -> Any:
    if called.fn in _ASKS and len(args) == 1:
        asked: Any = args[0].realize()
        if isinstance(containers.contents_of(asked) or asked, compat.ConstDictVariable):
            containers.guard_keys(asked)
    return inner(called, tx, args, kwargs)


@hooks.around(
    compat.InstructionTranslatorBase,
    methods.MERGE_KEYWORDS,
    "keywords that are given twice",
    gate=hooks.first,
)
def _merge_keywords(inner: Any, tx: Any, instruction: Any) -> None:
    """Model ``function(a=1, **more)``, of which Dynamo's model takes the later of two values.

    The text of the ``TypeError`` names the function; it is left to Python.
    """
    known, more = (tx.stack[-at].realize() for at in (instruction.arg + 1, 1))
    are_known = all(type(each) in containers.DICTIONARIES for each in (known, more))
    if are_known and containers.keys_of_both(known.items, more.items):
        handlers.break_graph("keyword given twice", "", "A call is given a keyword twice.")
    inner(tx, instruction)


@hooks.around(compat.MappingProxyVariable, methods.CHECK_PROXY, "proxies of unchanged dictionaries")
def _check_proxy(check: Any, proxy: Any, tx: compat.Tracer) -> None:
    if not _is_as_before(proxy, tx):
        check(proxy, tx)


def _is_as_before(proxy: Any, tx: compat.Tracer) -> bool:
    """Return whether a proxy is known to be of a dictionary that the call has not changed."""
    effects = tx.output.side_effects
    shown = [each for found in _objects(effects, proxy) for each in gc.get_referents(found)]
    if len(shown) != 1 or type(shown[0]) not in (dict, OrderedDict):
        return False
    known = effects.id_to_variable.get(id(shown[0]))
    return known is None or not effects.is_modified(known)


def _objects(effects: compat.SideEffects, proxy: Any) -> Iterator[MappingProxyType[Any, Any]]:
    """Yield the object that Dynamo has a model of; nothing for one that the call makes."""
    for each in effects.keepalive:
        if isinstance(each, MappingProxyType) and effects.id_to_variable.get(id(each)) is proxy:
            yield each

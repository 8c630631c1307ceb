"""Numbers that are computed in front of the graph.

``for t, h, w in grid.tolist()`` makes as many turns as the data say, and each of them tensors of
sizes that the data say. Where the numbers are computed from what the call is given, by operations
that do nothing else, those operations are cut out of the trace (``slices``). From then on the
boundary runs them before it calls the body, which gets the numbers as an argument: for Dynamo they
are integers like the sizes of a tensor, and another layout is another variant.

A trace notes what it could have had so. Only where it fails, or has to assume something of a
number, is it made again with the numbers at hand. It takes them for a tensor that it computes by
the very calls that were made in front of it; for any other it does as if there were none.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import FunctionType
from typing import Any, Final

import torch
from torch.fx import Node

from bcmend.dynamo import compat, frames, fx_graph, shape_env
from bcmend.dynamo.models import containers, graph_inputs
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.trace_state import Phase, at_the_end
from bcmend.dynamo.values import TensorValue, Value, constant, example_of, items_in
from bcmend.names import NUMBERS
from bcmend.tracing.deopt import rerun_policy
from bcmend.tracing.numbers import size_questions
from bcmend.tracing.numbers.slices import scope_of, slice_behind
from bcmend.tracing.programs import deciding_draws
from bcmend.tracing.programs.drawn_steps import draws_read
from bcmend.tracing.programs.program_slices import ProgramSlice
from bcmend.tracing.programs.straight_code import Joined, Scope
from bcmend.tracing.search.assumptions import Claim
from bcmend.tracing.search.falsified import Rewritten
from bcmend.tracing.sites import body_states, site_table
from bcmend.tracing.sites.refusal import NotThisWay, Refusal, attempt
from bcmend.tracing.sites.site_table import LiveSite

#: Numbers of one tensor, each of which is compared at each call.
_NUMBERS: Final = 1024
#: Tensors of one body.
_SLICES: Final = 256


def given(
    state: body_states.BodyState, body: FunctionType, arguments: Sequence[Any]
) -> tuple[Any, ...]:
    """Return the numbers that ``body`` is to get in a call: those of each tensor, as tuples.

    ``None`` for a tensor that cannot be computed in this call.
    """
    if not state.slices:
        return ()
    joined, names = _joined(state, body)
    scope = Scope.of_call(names, body, arguments)
    found: list[Any] = []
    scope.local[NUMBERS] = found  # a later slice may go on from the numbers of an earlier one
    _run(joined, scope, found)
    return tuple(found)


def _joined(state: body_states.BodyState, body: FunctionType) -> tuple[Joined, tuple[str, ...]]:
    """Return the slices of a body, to be run together, and the names of its arguments."""
    if state.joined is None or len(state.joined[0]) != len(state.slices):
        state.joined = Joined(state.slices), frames.arguments_of(body.__code__)
    found: tuple[Joined, tuple[str, ...]] = state.joined
    return found


def _run(joined: Joined, scope: Scope, found: list[Any]) -> None:
    with without_modes(), torch.no_grad():
        joined.numbers(scope.local, scope.space, found)


def without_modes() -> AbstractContextManager[Any]:
    """Have modes of dispatch see nothing; there are none where nothing is being traced."""
    is_any = compat._get_current_dispatch_mode() is not None
    return compat._disable_current_modes() if is_any else nullcontext()


def number_in(tx: compat.Tracer, variable: TensorValue) -> Value | None:
    """Return the number in a tensor of one element that was computed in front of the graph."""
    example = example_of(variable)
    found = _found(tx, variable)
    if isinstance(found, ProgramSlice):
        if not is_a_variant_each(example):
            _note(tx, found)
        return None
    while found is not None and (items := items_in(found)) is not None:
        (found,) = (each.realize() for each in items)
    return found


def is_a_variant_each(example: torch.Tensor) -> bool:
    """Return whether a trace knows each number of a tensor: fractions and truths."""
    return example.is_floating_point() or example.dtype is torch.bool


def note_variant(tx: compat.Tracer, variable: TensorValue, symbol: Any) -> None:
    """Note what is behind a number of a tensor that a trace has as a symbol."""
    found = _found(tx, variable)
    if isinstance(found, ProgramSlice):
        _note(tx, found, symbol)
        state = body_states.state_of(tx.output.root_tx.f_code)
        state.read_at[symbol] = frames.resumed(tx.f_code), tx.lineno


def list_of(tx: compat.Tracer, variable: TensorValue) -> Value | None:
    """Return the numbers in a tensor as ``tolist`` gives them, if they were computed in front."""
    if example_of(variable).is_floating_point():
        return None
    found = _found(tx, variable)
    if isinstance(found, ProgramSlice):
        _note(tx, found)
        return None
    return None if found is None else _as_lists(found)


def know_length(tx: compat.Tracer, variable: TensorValue) -> None:
    """Have a trace know how many items a tensor has, if they were counted in front of the graph."""
    example = example_of(variable)
    if not example.dim() or not shape_env.symbols_in(example.shape[0]):
        return
    found = _found(tx, variable, counts=True)
    if isinstance(found, ProgramSlice):
        _note(tx, found)
    elif found is not None:
        size_questions.take_for(tx, example.shape[0], found.as_python_constant())


def know_sizes(tx: compat.Tracer, variable: TensorValue) -> None:
    """Have a trace know the sizes that the data say of a new tensor, if they were computed.

    They are noted for the case that torch wants to know something of them.
    """
    node = variable.as_proxy().node
    is_item = node.target is operator.getitem and isinstance(node.args[1], int)
    maker: Any = node.args[0] if is_item else node
    made = maker.meta.get("unbacked_bindings")
    if not made:
        return
    for dimension, size in enumerate(example_of(variable).shape):
        symbols = shape_env.symbols_in(size)
        if len(symbols) != 1 or symbols.isdisjoint(made):
            continue
        wanted = attempt(partial(_size_of, tx, node, dimension))
        if isinstance(wanted, Refusal):
            continue
        found = _computed(tx, wanted, is_known=False)
        number = None if found is None or isinstance(found, ProgramSlice) else _plain(found)
        if isinstance(found, ProgramSlice):
            if _had_others(tx):  # in other turns of a loop
                number = _tried(tx, found, _site(tx))
            else:
                _note(tx, found, *symbols, is_size=True)
        if number is not None:
            size_questions.take_for(tx, size, number)


def _had_others(tx: compat.Tracer) -> bool:
    """Return whether numbers of the line that is being traced were computed in front."""
    is_any = bool(body_states.state_of(tx.output.root_tx.f_code).slices)
    return is_any and _site(tx).outcome.lowering == _AHEAD


def _plain(number: Value) -> Any:
    """Return a number as torch has it."""
    if isinstance(number, compat.SymNodeVariable):
        return number.sym_num
    return number.as_python_constant()


def _size_of(tx: compat.Tracer, node: Node, dimension: int) -> ProgramSlice:
    """Return what a size of a tensor is computed from, which may be less than the tensor is.

    Raises:
        Refusal: it cannot be computed in front of the graph.
    """
    is_alone = len(node.args) == 1 and not node.kwargs  # the counts, of which an index is made
    given = node.args[0] if is_alone else next(iter(node.args[1:]), None)
    if isinstance(given, Node) and isinstance(example := given.meta["example_value"], torch.Tensor):
        if node.target in (torch.repeat_interleave, "repeat_interleave") and _are_counts(example):
            return slice_behind(tx, given).sum()
        if node.target is operator.getitem and example.dtype is torch.bool:
            return slice_behind(tx, given).count()
    return slice_behind(tx, node).size(dimension)


def _are_counts(example: torch.Tensor) -> bool:
    """Return whether each of some numbers is for another row: one alone may be for all."""
    if example.dim() != 1:
        return False
    size = example.shape[0]
    return not shape_env.symbols_in(size) and not compat.statically_known_true(size == 1)


def truth_of_size(tx: compat.Tracer, condition: compat.SymNodeVariable) -> bool | None:
    """Return the truth of what a size is compared with, if it was computed in front of the graph.

    Each truth is a variant: it is noted for the case that torch wants to know it.
    """
    symbols = shape_env.symbols_in(condition.sym_num)
    wanted = attempt(lambda: slice_behind(tx, condition.as_proxy().node).truth())
    if isinstance(wanted, Refusal) or len(symbols) != 1:
        return None
    found = _computed(tx, wanted, is_known=True)
    if isinstance(found, ProgramSlice):
        _note(tx, found, *symbols)
        return None
    return None if found is None else bool(found.as_python_constant())


def truth_of_condition(tx: compat.Tracer, condition: Value, site: LiveSite) -> bool | None:
    """Return the truth of a condition of a branch, if it was computed in front of the graph.

    In a later turn of a loop the truth is that of the call being traced, and the trace is made
    again with this condition computed as well.
    """
    state, site = body_states.state_of(tx.output.root_tx.f_code), _decider(tx, condition, site)
    if state.may_break or not state.slices:
        return None  # nothing was; what is behind each condition need not be looked for
    found = _truth_ahead(tx, condition)
    if not isinstance(found, ProgramSlice):
        return None if found is None else found.as_python_constant()
    if site.key in state.truths or _is_of_numbers_ahead(state, found):
        truth: bool | None = _tried(tx, found, site)
        return truth
    return None


def _is_of_numbers_ahead(state: body_states.BodyState, condition: ProgramSlice) -> bool:
    """Return whether a condition is on random numbers that are computed in front of the graph.

    The graph may not read these. It is compared how many draws are before them: on one path of the
    call these are the same.
    """
    drawn = draws_read(condition)
    return any(not drawn.isdisjoint(draws_read(each)) for each in state.slices if drawn)


def decides(tx: compat.Tracer, site: LiveSite) -> bool:
    """Return whether conditions of a branch are computed in front of the graph."""
    return site.key in body_states.state_of(tx.output.root_tx.f_code).truths


#: The sites of branches by the nodes of their conditions.
_DECIDERS: Final[Slot[dict[Node, LiveSite]]] = Slot(dict, rolls_back=False)


def _decider(tx: compat.Tracer, condition: Value, site: LiveSite) -> LiveSite:
    """Return the first site with a condition: code is split by that of a branch before it."""
    if type(condition) is not compat.TensorVariable:
        return site
    return _DECIDERS.of(tx.output).setdefault(condition.as_proxy().node, site)


def _tried(tx: compat.Tracer, wanted: ProgramSlice, site: LiveSite) -> Any:
    """Return what a slice gives in the call being traced, by which the trace goes on.

    It is made again, with all that it has gone by computed in front: a loop of many turns would
    need a trace for each of them otherwise.
    """
    state = body_states.state_of(tx.output.root_tx.f_code)
    state.is_asked_for = bool(tx.one_graph)
    if not state.may_try(site.key):
        return None
    found = _note_in(tx, state.tried, wanted, site.key)
    if found is not None and not _IS_TRIED.of(tx.output):
        _IS_TRIED.put(tx.output, True)
        at_the_end(tx.output, Phase.CHECK, lambda _: body_states.have_tried(state))
    return found


_IS_TRIED: Final[Slot[bool]] = Slot(bool, rolls_back=False)


def note_condition(tx: compat.Tracer, condition: Value, site: LiveSite) -> bool:
    """Note the condition of a branch that was refused: each truth may be a graph of its own.

    Return whether that could be.
    """
    found = _truth_ahead(tx, condition)
    if not isinstance(found, ProgramSlice):
        return False
    state = body_states.state_of(tx.output.root_tx.f_code)
    state.is_asked_for = bool(tx.one_graph)
    _note_in(tx, state.noted_truths, found, _decider(tx, condition, site).key)
    return True


def take_condition(tx: compat.Tracer, condition: Value, site: LiveSite) -> None:
    """Have a condition computed in front of the graph, if it can be.

    Raises:
        Rewritten: it can.
    """
    state = body_states.state_of(tx.output.root_tx.f_code)
    if not state.may_break and note_condition(tx, condition, site) and state.have_truth():
        raise Rewritten


def _truth_ahead(tx: compat.Tracer, condition: Value) -> Value | ProgramSlice | None:
    if type(condition) is not compat.TensorVariable or example_of(condition).numel() != 1:
        return None
    wanted = attempt(lambda: _slice_of(tx, condition, may_draw=_may_draw(tx)).truth())
    if isinstance(wanted, Refusal):
        return None
    return _computed(tx, wanted, is_known=True, has_site=True)


def _as_lists(value: Value) -> Value:
    items = items_in(value)
    if items is None:
        return value
    return containers.new_list([_as_lists(each.realize()) for each in items])


def _found(
    tx: compat.Tracer, variable: TensorValue, *, counts: bool = False
) -> Value | ProgramSlice | None:
    """Return the numbers in a tensor, what is behind it if they are not known, or ``None``.

    ``counts`` says whether the number of its items is asked for.
    """
    # Not fractions: each would be a variant, of which random numbers have no end.
    may_draw = not example_of(variable).is_floating_point() and _may_draw(tx)
    wanted = attempt(lambda: _slice_of(tx, variable, may_draw=may_draw))
    if isinstance(wanted, Refusal):
        return None
    found = _computed(tx, wanted.length() if counts else wanted, is_known=counts)
    is_given = found is not None and not isinstance(found, ProgramSlice)
    if is_given and deciding_draws.note(tx, variable.as_proxy().node, _site(tx)):
        deciding_draws.keep(tx, fx_graph.method(tx, "any", variable))
    return found


def _may_draw(tx: compat.Tracer) -> bool:
    """Return whether what is computed in front of the graph may be random."""
    return body_states.state_of(tx.output.root_tx.f_code).holds(Claim.DRAWN)


def _computed(
    tx: compat.Tracer, wanted: ProgramSlice, *, is_known: bool, has_site: bool = False
) -> Value | ProgramSlice | None:
    """Return what a slice gives; itself if it was not run, ``None`` if it gives nothing here.

    ``is_known`` says whether it is a constant for the trace, and another value another variant;
    ``has_site``, whether what asks is a site by itself.
    """
    policy = frames.mark_over(tx)
    numbers: Any = tx.output.local_scope.get(NUMBERS)
    if numbers is None or tx.export or policy is None or policy.numbers != "ahead":
        return None
    known = enumerate(body_states.state_of(tx.output.root_tx.f_code).slices)
    place = next((at for at, each in known if each == wanted), None)
    if place is None:
        return wanted
    if place >= len(numbers) or not _is_short(numbers[place]):
        return None
    if not has_site:
        site = _site(tx)
        if site_table.is_left_alone(site, tx, policy):
            return None
        site.mended(_AHEAD, "computed in front of the graph")
    is_known = is_known or isinstance(numbers[place], (float, bool))
    return _given(tx, numbers, place, is_known=is_known)


_AHEAD: Final = "ahead"


def _site(tx: compat.Tracer) -> LiveSite:
    """Return the site of a number at the line that is being traced."""
    return site_table.site_being_traced(tx, frames.resumed(tx.f_code), "numbers", "number")


def _given(tx: compat.Tracer, numbers: Any, place: int, *, is_known: bool) -> Value:
    """Return the numbers of a tensor as Dynamo has arguments of the frame, or as a constant."""
    rerun_policy.note(tx)  # an operation on them may fail inside the graph, and be handled
    source = graph_inputs.item_of_local(NUMBERS, place)
    if is_known:
        compat.install_guard(source.make_guard(compat.GuardBuilder.EQUALS_MATCH))
        return constant(numbers[place])
    result: Value = Value.build(tx, numbers[place], source).realize()
    return result


def _note(
    tx: compat.Tracer, wanted: ProgramSlice, symbol: Any = None, *, is_size: bool = False
) -> None:
    """Note what is computed in front of the graph if the trace fails."""
    state = body_states.state_of(tx.output.root_tx.f_code)
    _note_in(tx, state.noted_sizes if is_size else state.noted, wanted, symbol)


def _note_in(
    tx: compat.Tracer, noted: list[tuple[Any, Any]], wanted: ProgramSlice, symbol: Any = None
) -> Any:
    """Note what is computed in front; return what it gives in this call, ``None`` if nothing."""
    state = body_states.state_of(tx.output.root_tx.f_code)
    if len(state.slices) + len(noted) >= _SLICES:
        return None
    found: list[Any] = []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        _run(Joined([wanted]), scope_of(tx), found)
    if not _is_short(found[0]) or warned:
        return None
    if all(wanted != each or symbol != known for each, known in noted):
        noted.append((wanted, symbol))
    return found[0]


def _is_short(numbers: Any) -> bool:
    if numbers is None or numbers != numbers:  # no guard on NaN would hold
        return False
    return not isinstance(numbers, tuple) or _count(numbers) <= _NUMBERS


def _count(numbers: Any) -> int:
    return sum(map(_count, numbers)) if isinstance(numbers, tuple) else 1


def _slice_of(tx: compat.Tracer, variable: TensorValue, *, may_draw: bool = False) -> ProgramSlice:
    """Return what is behind a tensor. Raises ``Refusal``."""
    if example_of(variable).is_complex() or type(variable) is not compat.TensorVariable:
        raise NotThisWay()
    return slice_behind(tx, variable.as_proxy().node, may_draw=may_draw)

"""Make operators of the graph of records that are to run at their place.

Reads a record as the tracer has it; appends one call of ``bcmend::emit`` to the main graph and one
``Statement`` to the plan of the trace. What the record needs becomes one of: a constant of the
plan; a tensor of the operator, with the contents of that moment; an object that the frame finds
where Dynamo found it, before its graph runs. A symbolic number travels as a tensor.

All records have one order, so the statements of a frame are either all run inside the graph or all
after it. The first record that cannot run inside has the frame traced again with all of them
deferred; one that has to, after others that need not, has it traced again with all inside.

Effects on Python objects are replayed after the graph. A check that fails inside the graph loses
those before it, unless the call can be made again in plain Python; where neither is so, the records
are deferred too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Final

import torch
from torch._dynamo.bytecode_transformation import create_call_function
from torch._dynamo.source import GlobalSource, LocalSource
from torch._dynamo.variables import (
    ConstantVariable,
    ConstDictVariable,
    ListVariable,
    NestedUserFunctionVariable,
    TensorVariable,
    TupleVariable,
)
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.builder import GraphArg, wrap_fx_proxy
from torch._dynamo.variables.misc import NewGlobalVariable, StringFormatVariable
from torch._dynamo.variables.tensor import SymNodeVariable
from torch._guards import ChainedSource, GuardSource, Source
from torch.fx import Proxy

from bcmend.runtime import backoff, emission, per_trace, repeats, scalars
from bcmend.runtime.emission import Make, Plan, Statement
from bcmend.runtime.merge import example_of
from bcmend.runtime.sites import LiveSite
from bcmend.runtime.watches import SiteChanged

__all__ = ["INLINE", "add", "is_asked_for", "is_wanted", "must_wait", "note_deferred", "writes"]

INLINE: Final = "inline"
_DEFERRED: Final = "deferred"

_DTYPES: Final = {
    torch.SymBool: torch.bool,
    torch.SymInt: torch.int64,
    torch.SymFloat: torch.float64,
}


class CannotRunInside(Exception):
    """A record needs what a graph cannot have."""


@dataclass(slots=True, eq=False)
class _Trace:
    """What one trace has made of its records so far.

    ``plan`` and ``call`` (the input of the graph) are there once a record runs inside the graph.
    """

    plan: Plan | None = None
    call: Proxy | None = None
    has_deferred: bool = False
    writes: bool = False
    is_checked: bool = False


def _trace(tx: Any) -> _Trace:
    return per_trace.kept(tx.output, "inline", _Trace)


def _state(tx: Any) -> backoff.BodyState:
    return backoff.state_of(tx.output.root_tx.f_code)


def is_asked_for(site: LiveSite, *, raises: bool) -> bool:
    """Whether the policy asks for records of a site to run at their place."""
    return (site.guards if raises else site.output) == INLINE


def is_wanted(tx: Any, site: LiveSite, *, raises: bool) -> bool:
    """Whether a record of ``site`` that is made now is to run inside the graph."""
    state = _state(tx)
    if state.timing == _DEFERRED:
        return False
    return (
        state.timing == INLINE or _trace(tx).plan is not None or is_asked_for(site, raises=raises)
    )


def must_wait(tx: Any) -> None:
    """Have the frame traced again with all records deferred."""
    _state(tx).timing = _DEFERRED
    raise SiteChanged(restart_reason="bcmend: a record cannot run inside the graph")


def note_deferred(tx: Any) -> None:
    """Note that the trace has a deferred record of a statement."""
    _trace(tx).has_deferred = True


def writes(output: Any) -> bool:
    """Whether the graph of a trace writes something while it runs."""
    return per_trace.kept(output, "inline", _Trace).writes


def add(
    tx: Any,
    site: LiveSite,
    action: VariableTracker,
    inputs: VariableTracker,
    predicate: VariableTracker | None,
    *,
    raises: bool,
) -> bool:
    """Have a record run at this place of the graph, if that is wanted; say whether it will be."""
    if not is_wanted(tx, site, raises=raises):
        return False
    trace = _trace(tx)
    if trace.has_deferred:
        _state(tx).timing = INLINE
        raise SiteChanged(restart_reason="bcmend: records run inside the graph")
    try:
        _append(tx, trace, site, action, inputs, predicate, raises)
    except CannotRunInside:
        if trace.plan is not None and trace.plan.statements:
            must_wait(tx)
        _state(tx).timing = _DEFERRED
        return False
    repeats.note(tx)
    return True


def _append(
    tx: Any,
    trace: _Trace,
    site: LiveSite,
    action: VariableTracker,
    inputs: VariableTracker,
    predicate: VariableTracker | None,
    raises: bool,
) -> None:
    if tx.output.current_tracer.parent is not None:
        raise CannotRunInside("a graph within the graph")
    plan = trace.plan if trace.plan is not None else Plan()
    gathered = _Gathered(tx, plan)
    made_action, made_inputs = gathered.maker(action), gathered.maker(inputs)
    changed = _changed_in_place(tx, gathered) if raises else ()
    if trace.plan is None:
        trace.plan, trace.call = plan, _call_input(tx, plan)
    number = len(plan.statements)
    plan.statements.append(Statement(site.key, made_action, made_inputs, raises, changed))
    condition = None if predicate is None else predicate.as_proxy()
    arguments = (trace.call, number, condition, list(gathered.tensors))
    tx.output.create_proxy("call_function", emission.EMIT, arguments, {})
    if raises:
        _check_what_is_lost(tx, trace)
    else:
        trace.writes = True


def _call_input(tx: Any, plan: Plan) -> Proxy:
    """Add the call to the inputs of the graph."""
    output = tx.output
    source = _CallSource(output.install_global("bcmend_plan", plan), plan)
    given = torch.empty((), dtype=torch.int64, device="cpu")
    fake = tx.fake_mode.from_tensor(given)
    proxy: Proxy = output.root_tracer.create_graph_input(
        "bcmend_call", torch.Tensor, fake, source=source
    )
    proxy.node.meta["grapharg"] = GraphArg(
        source, given, pass_arg_as_tensor=False, fake_tensor=fake, example_strong_ref=given
    )
    return proxy


@dataclass(frozen=True, eq=False)
class _CallSource(Source):
    """Where the call comes from: it is made just before the graph runs."""

    plan_name: str
    plan: Plan

    def reconstruct(self, codegen: Any) -> None:
        codegen.add_push_null(lambda: codegen.load_import_from(emission.__name__, "begin"))
        codegen.append_output(codegen.create_load_global(self.plan_name, add=True))
        for source in self.plan.sources:
            codegen(source)
        codegen.extend_output(create_call_function(1 + len(self.plan.sources), False))

    @property
    def guard_source(self) -> GuardSource:
        return GuardSource.GLOBAL

    @property
    def _name_template(self) -> str:
        return f"G[{self.plan_name!r}]"


# What is lost where a check fails


def _changed_in_place(tx: Any, gathered: _Gathered) -> tuple[tuple[int, int], ...]:
    """Return the arguments that the graph has changed by now; it may be that only its end shows."""
    tracer = tx.output.root_tracer
    placeholders = [node for node in tracer.graph.nodes if node.op == "placeholder"]
    indices = tracer.has_input_mutation().mutated_input_indices
    changed = []
    for node in (placeholders[index] for index in indices):
        source = node.meta["grapharg"].source
        _require_there_before(source)
        position = gathered.tensor(Proxy(node, tracer))
        changed.append((position, gathered.plan.slot(source)))
    return tuple(changed)


def _check_what_is_lost(tx: Any, trace: _Trace) -> None:
    """Once the graph is complete, defer all records if a check could lose an effect before it."""
    if trace.is_checked or not _modified(tx):
        return
    trace.is_checked = True
    output, state = tx.output, _state(tx)

    def check(module: Any) -> None:
        can_be_repeated = repeats.is_repeatable(output) and not trace.writes
        if not can_be_repeated:
            state.timing = _DEFERRED
            raise SiteChanged(restart_reason="bcmend: an effect before a check would be lost")

    output.register_finalizer_fns.append(check)


def _modified(tx: Any) -> list[VariableTracker]:
    """Return the objects from before the call of which the trace has changed something."""
    effects = tx.output.side_effects
    return [
        variable
        for variable in effects.id_to_variable.values()
        if (
            isinstance(variable, NewGlobalVariable)
            or (variable.source is not None and variable.mutation_type is not None)
        )
        and _is_modified(effects, variable)
    ]


def _is_modified(effects: Any, variable: VariableTracker) -> bool:
    if isinstance(variable, NewGlobalVariable):
        return variable in effects.store_attr_mutations
    return bool(effects.is_modified(variable))


# Values


class _Gathered:
    """What one record needs, as it is found in the trace."""

    def __init__(self, tx: Any, plan: Plan) -> None:
        self._tx, self.plan = tx, plan
        self.tensors: list[Proxy] = []

    def tensor(self, proxy: Proxy) -> int:
        """Return the position of a tensor among those of the operator."""
        self.tensors.append(proxy)
        return len(self.tensors) - 1

    def maker(self, value: VariableTracker) -> Make:
        """Return what makes ``value`` as it is now. Raises ``CannotRunInside``."""
        value = value.realize()
        if hasattr(value, "as_recorded"):
            raise CannotRunInside("a value with one form on each side of a branch")
        for kind, make in _MAKERS.items():
            if type(value) is kind:
                return make(self, value)
        if isinstance(value, TensorVariable):
            raise CannotRunInside("a tensor of a class of its own")
        if value.source is not None:
            return self._object(value)
        if value.is_python_constant():
            return _constant(value.as_python_constant())
        raise CannotRunInside(f"an object made in the call: {type(value).__name__}")

    def of_constant(self, value: Any) -> Make:
        return _constant(value.value)

    def of_tensor(self, value: Any) -> Make:
        example = example_of(value)
        if type(example).__torch_dispatch__ is torch.Tensor.__torch_dispatch__:
            raise CannotRunInside("a tensor that is not a fake one")
        is_parameter = isinstance(example, torch.nn.Parameter)
        is_marked = example.requires_grad and example.is_leaf
        position = self.tensor(value.as_proxy())
        if not (is_parameter or is_marked):
            return lambda tensors, objects: tensors[position]
        return lambda tensors, objects: _marked(tensors[position], is_parameter, is_marked)

    def of_number(self, value: Any) -> Make:
        known: Any = scalars.tensor_behind(self._tx, value)
        if known is None:
            proxy = self._tx.output.create_proxy(
                "call_function",
                torch.scalar_tensor,
                (value.as_proxy(),),
                {"dtype": _DTYPES[type(value.sym_num)]},
            )
            known = wrap_fx_proxy(self._tx, proxy)
        position = self.tensor(known.as_proxy())
        return lambda tensors, objects: tensors[position].item()

    def of_list(self, value: Any) -> Make:
        items = self._all(value.items)
        return lambda tensors, objects: [make(tensors, objects) for make in items]

    def of_tuple(self, value: Any) -> Make:
        items = self._all(value.items)
        return lambda tensors, objects: tuple([make(tensors, objects) for make in items])

    def of_dict(self, value: Any) -> Make:
        if value.user_cls is not dict:
            raise CannotRunInside("a dictionary of a class of its own")
        keys = self._all([key.vt for key in value.items])
        items = self._all(list(value.items.values()))
        return lambda tensors, objects: {
            key(tensors, objects): make(tensors, objects)
            for key, make in zip(keys, items, strict=True)
        }

    def of_text(self, value: Any) -> Make:
        items = self._all(value.sym_args)
        names = list(value.sym_kwargs)
        named = self._all(list(value.sym_kwargs.values()))
        return lambda tensors, objects: value.format_string.format(
            *[make(tensors, objects) for make in items],
            **{name: make(tensors, objects) for name, make in zip(names, named, strict=True)},
        )

    def of_function(self, value: Any) -> Make:
        """Make a function of this module's writing; those of the program may hold anything."""
        closure = value.closure
        if value.defaults is not None or value.kwdefaults is not None or value.wrapped_fn:
            raise CannotRunInside("a function with defaults")
        if closure is not None and closure.items:
            raise CannotRunInside("a function that shares variables")
        code = value.get_code()
        if any(isinstance(each, NewGlobalVariable) for each in _modified(self._tx)):
            raise CannotRunInside("a global variable was stored to")
        return _constant(FunctionType(code, value.f_globals, value.fn_name.as_python_constant()))

    def _all(self, values: Sequence[VariableTracker]) -> list[Make]:
        return [self.maker(each) for each in values]

    def _object(self, value: VariableTracker) -> Make:
        """Find an object where Dynamo found it; it has to be as it was then."""
        source = value.source
        assert source is not None
        _require_there_before(source)
        for changed in _modified(self._tx):
            if changed is value or source in _origins(changed.source):
                raise CannotRunInside("an object that the call has changed")
        known = getattr(value, "value", None)
        if _holds_tensors(known):
            raise CannotRunInside("an object with tensors, which may have been changed")
        slot = self.plan.slot(source)
        return lambda tensors, objects: objects[slot]


_MAKERS: Final[dict[type, Callable[[_Gathered, Any], Make]]] = {
    ConstantVariable: _Gathered.of_constant,
    TensorVariable: _Gathered.of_tensor,
    SymNodeVariable: _Gathered.of_number,
    ListVariable: _Gathered.of_list,
    TupleVariable: _Gathered.of_tuple,
    ConstDictVariable: _Gathered.of_dict,
    StringFormatVariable: _Gathered.of_text,
    NestedUserFunctionVariable: _Gathered.of_function,
}


def _constant(value: Any) -> Make:
    return lambda tensors, objects: value


def _marked(tensor: torch.Tensor, is_parameter: bool, requires_grad: bool) -> torch.Tensor:
    """Return a tensor that a back end was given without them with its marks."""
    is_one = isinstance(tensor, torch.nn.Parameter) or not is_parameter
    if is_one and tensor.requires_grad == requires_grad:
        return tensor
    if is_parameter:
        return torch.nn.Parameter(tensor.detach(), requires_grad)
    return tensor.detach().requires_grad_(requires_grad)


def _origins(source: Source | None) -> list[Source]:
    """Return ``source`` and what it is a part of."""
    found = []
    while source is not None:
        found.append(source)
        source = source.base if isinstance(source, ChainedSource) else None
    return found


def _require_there_before(source: Source) -> None:
    """Raise ``CannotRunInside`` for a source that is not known before the graph runs."""
    root = _origins(source)[-1]
    if source.is_ephemeral() or not isinstance(root, (LocalSource, GlobalSource)):
        raise CannotRunInside(f"an object from {type(root).__name__}")


def _holds_tensors(value: object) -> bool:
    """Whether what an object writes of itself may be the contents of a tensor."""
    if isinstance(value, torch.nn.Module):
        return False
    held = getattr(value, "__dict__", None)
    return isinstance(held, dict) and any(isinstance(each, torch.Tensor) for each in held.values())

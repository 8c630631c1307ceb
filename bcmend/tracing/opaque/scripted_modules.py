"""Modules that ``torch.jit.script`` has compiled, inside of others.

Dynamo breaks the graph where it finds one. In mended code a call of one is an operator of the graph
(``bcmend.tracing.opaque.script_operator``), where running it on fake tensors shows that it gives
new tensors and changes none. Everywhere else, and for anything but a call, the graph breaks.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from bcmend.dynamo import compat, hooks
from bcmend.dynamo.models import methods, objects
from bcmend.dynamo.values import (
    TensorValue,
    Value,
    constant,
    example_of,
    fake_mode_of,
    function_of,
    global_of,
)
from bcmend.tracing.deopt import rerun_policy
from bcmend.tracing.effects.operator_runs import storage_of
from bcmend.tracing.opaque import operator, script_graphs, script_operator
from bcmend.tracing.opaque.script_graphs import Lifted, NotLifted
from bcmend.tracing.sites import capture_mode
from bcmend.tracing.substitutes.autograd_leaf import is_plain

#: What ``torch.jit.script``, ``freeze``, ``load`` and ``trace`` give.
_JIT: Final[Any] = torch.jit  # which does not say what of it is public
_KINDS: Final = (_JIT.RecursiveScriptModule, _JIT.TopLevelTracedModule)


class ScriptedModule(compat.VariableTracker):
    """A module that can be called.

    Attributes:
        module: it.
        as_torch_has_it: returns Dynamo's model of it, or breaks the graph.
    """

    def __init__(self, module: Any, as_torch_has_it: Callable[[], Any], **more: Any) -> None:
        super().__init__(**more)
        self.module, self.as_torch_has_it = module, as_torch_has_it

    def python_type(self) -> type:
        return type(self.module)

    def call_function(
        self, tx: compat.Tracer, args: Sequence[Value], kwargs: dict[str, Value]
    ) -> Any:
        try:
            return _emitted(tx, self, args, kwargs)
        except NotLifted:
            return self.as_torch_has_it().call_function(tx, args, kwargs)

    @methods.implements(methods.GETATTR)
    def _attribute(self, tx: compat.Tracer, name: str) -> Any:
        if name == "forward":
            return compat.GetAttrVariable(self, name)
        return objects.attribute_of(tx, self.as_torch_has_it(), name)

    def call_method(self, tx: compat.Tracer, name: str, args: Any, kwargs: Any) -> Any:
        if name == "forward":
            return self.call_function(tx, args, kwargs)
        return self.as_torch_has_it().call_method(tx, name, args, kwargs)


@hooks.around(
    compat.VariableBuilder,
    methods.WRAP_MODULE,
    "modules that torch.jit.script has compiled",
    gate=hooks.of_builder,
    place=1,
)
def _wrap_module(inner: Any, self: Any, value: torch.nn.Module) -> Any:
    is_scripted = type(value) in _KINDS
    if not is_scripted or self.tx.export or not capture_mode.may_be_mended(self.tx):
        return inner(self, value)
    return ScriptedModule(value, lambda: inner(self, value), source=self.source)


def _emitted(
    tx: compat.Tracer, owner: ScriptedModule, args: Sequence[Value], kwargs: dict[str, Value]
) -> Any:
    """Write the operator into the graph, and return what the module gives.

    Raises:
        NotLifted: it would not be equal.
    """
    if compat._is_any_autocast_enabled() or owner.source is None:
        raise NotLifted("it may cast, or is not found again")
    module = owner.module
    found = script_graphs.lifted(module)
    given = operator.Form()
    places = script_graphs.named(module, args, kwargs, constant)
    parts = [_part(tx, each, given) for each in places]
    count = len(given.tensors)
    form = json.dumps([parts, count])
    _guard(owner.source, module, found)
    tensors = [*given.tensors, *_state(tx, owner.source, module, found)]
    if not all(map(is_plain, tensors)):
        raise NotLifted("it has a tensor of a subclass")
    trial = _Trial(tx, found.key, form, list(map(example_of, tensors)))
    flags = compat.ListVariable([*map(constant, trial.is_recorded)])
    reaches = compat.ListVariable([*map(constant, trial.reaches)])
    named = constant(found.key), constant(form)
    arguments = [*named, compat.ListVariable(tensors), flags, reaches]
    operand = function_of(tx, script_operator.SCRIPTED)
    records = constant(torch.is_grad_enabled())
    rerun_policy.note(tx)  # what fails inside a graph that stock has not made
    results: Any = operand.call_function(tx, [*arguments, records], {})
    return _made_of(trial.result, iter(results.items))


def _part(tx: compat.Tracer, value: Value, given: operator.Form) -> list[Any]:
    value = value.realize()
    if isinstance(value, TensorValue):
        if not is_plain(value) or compat.is_functorch_wrapped_tensor(example_of(value)):
            raise NotLifted("it is given a tensor of a subclass or of a transform")
        return given.tensor(value)
    if not value.is_python_constant():
        raise NotLifted(f"it is given a {type(value).__name__}")
    try:
        return operator.constant(value.as_python_constant())
    except operator.NotWritten as error:
        raise NotLifted(str(error)) from None


def _state(tx: compat.Tracer, source: Any, module: Any, found: Lifted) -> list[Any]:
    """Return the tensors of a module as inputs of the graph."""
    tensors = []
    for path in found.state:
        *inner, name = path
        owner, at = _inside(module, source)
        for each in inner:
            owner, at = _inside(getattr(owner, each), _item(at, "_modules", each))
        table = next((each for each in _TABLES if name in getattr(owner, each)), None)
        if table is None:
            raise NotLifted("it has a tensor that is no parameter and no buffer")
        tensors.append((getattr(owner, name), _item(at, table, name)))
    tensors += [(each, global_of(tx.output, each)) for each in found.constants]
    if any(each._backward_hooks for each, _ in tensors):
        raise NotLifted("a parameter has hooks")
    return [Value.build(tx, each, at).realize() for each, at in tensors]


#: Where modules have tensors. Guards on attributes look nowhere else, and know no `__getattr__`.
_TABLES: Final = ("_parameters", "_buffers")


def _inside(module: Any, source: Any) -> tuple[Any, Any]:
    """Return the module that has the tensors of one that was traced, and its source."""
    name = "_actual_script_module"
    inner = vars(module).get(name)
    if inner is None:
        return module, source
    return inner, compat.UnspecializedParamBufferSource(source, name)


def _item(source: Any, table: str, name: str) -> compat.Source:
    """Return the source of an item in a table of a module."""
    return compat.GetItemSource(compat.UnspecializedParamBufferSource(source, table), name)


# What the module gives, as fake tensors show it


class _Trial:
    """What a module gives for fake tensors.

    Attributes:
        result: it.
        is_recorded: for each tensor that is given, whether it requires gradients.
        reaches: for each result, one after the other, and each tensor, whether gradients flow.
    """

    def __init__(self, tx: compat.Tracer, key: str, form: str, examples: list[Tensor]) -> None:
        records = torch.is_grad_enabled()
        self.is_recorded = [records and each.requires_grad for each in examples]
        shape_env = tx.output.shape_env
        with fake_mode_of(tx), shape_env.ignore_fresh_unbacked_symbols():
            own = script_operator.leaves_for(examples, self.is_recorded)
            versions = [each._version for each in own]
            try:
                self.result = script_operator.called_on_fakes(key, form, own)
            except Exception as error:  # TorchScript raises whatever an operator has raised
                raise NotLifted("it cannot be run on fake tensors") from error
            if versions != [each._version for each in own]:
                raise NotLifted("it changes what it is given")
            results = [*script_operator.tensors_in(self.result)]
            _require_new(results, own)
            self.reaches = [is_one for each in results for is_one in self._reached(each, own)]

    def _reached(self, result: Tensor, own: list[Tensor]) -> list[bool]:
        is_number = result.is_floating_point() or result.is_complex()
        if is_number and result.requires_grad is not any(self.is_recorded):
            raise NotLifted("not all results require gradients")
        if not result.requires_grad:
            return [False] * len(own)
        leaves = [each for each in own if each.requires_grad]
        found = iter(
            torch.autograd.grad(result, leaves, result, allow_unused=True, retain_graph=True)
        )
        return [is_one and next(found) is not None for is_one in self.is_recorded]


def _require_new(results: Sequence[Tensor], own: Sequence[Tensor]) -> None:
    memory = [storage_of(each) for each in (*results, *own)]
    if not results or any(memory.count(one) > 1 for one in memory[: len(results)]):
        raise NotLifted("a result shares memory")
    if any(compat.free_unbacked_symbols(each) or each.is_quantized for each in results):
        raise NotLifted("the form of a result depends on the data")


_PLAIN: Final = (type(None), bool, int, float, str)


def _made_of(result: Any, tensors: Any) -> Value:
    """Return the model of a result with other tensors."""
    if isinstance(result, Tensor):
        found: Value = next(tensors)
        return found
    if type(result) in (tuple, list):
        items = [_made_of(each, tensors) for each in result]
        return compat.TupleVariable(items) if type(result) is tuple else compat.ListVariable(items)
    if type(result) in _PLAIN:
        return constant(result)
    raise NotLifted(f"it returns a {type(result).__name__}")


# Guards


def _guard(source: Any, module: Any, found: Lifted) -> None:
    """Have the frame traced again once there is another module, or it has other attributes."""
    reference = weakref.ref(module)

    def is_as_before(value: Any) -> bool:
        return value is reference() and found.holds_of(value)

    def SCRIPTED_MODULE(builder: compat.GuardBuilderBase, guard: compat.Guard) -> None:
        assert isinstance(builder, compat.GuardBuilder)
        code = [f"{guard.name} is the same module"]
        builder.get_guard_manager(guard).add_lambda_guard(is_as_before, code, guard.user_stack)

    compat.install_guard(compat.Guard(source, SCRIPTED_MODULE))

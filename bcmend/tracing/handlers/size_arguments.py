"""Data-dependent numbers and sizes as arguments of torch's operations.

``torch.arange(n)`` and ``x.view(b, h, w)`` read the number in a tensor, once for each place. In
mended code the number is taken out before the call, so that it is the same number at every place,
and a constant where it is known. ``x.squeeze()`` and ``x.max()`` do something else for sizes of
one, or of zero, which a graph would do as for any other; there the graph asserts that the size is
not that, or an arm has the call made in plain Python where it is. A dimension along which runs of
equal parts are looked for is counted from the front. Extends Dynamo's models of torch's functions
and of methods of tensors.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Final

import torch

from bcmend.dynamo import compat, handlers, hooks
from bcmend.dynamo.models import methods
from bcmend.dynamo.values import Value, constant, example_of, is_unbacked
from bcmend.knowledge import effects
from bcmend.tracing.indexing import item_reads
from bcmend.tracing.numbers import ahead, scalars, size_questions
from bcmend.tracing.output import deferred_exceptions
from bcmend.tracing.sites import capture_mode, site_table

#: Fail for a size of zero, where a compiled graph gives an empty tensor.
_RESIZE: Final = (torch.nn.functional.interpolate, torch.nn.functional.upsample)

#: Arguments that are numbers, or sequences of them: the position of the first one.
_FUNCTIONS: Final[dict[Any, int]] = {
    **dict.fromkeys((torch.arange, torch.zeros, torch.ones, torch.empty, torch.eye), 0),
    **dict.fromkeys((torch.rand, torch.randn, torch.randperm, torch.randint, torch.full), 0),
    **dict.fromkeys((torch.topk, torch.kthvalue, torch.tril, torch.triu), 1),
    **dict.fromkeys((torch.narrow, torch.reshape, torch.split, torch.chunk, torch.roll), 1),
    **dict.fromkeys((torch.tile, torch.broadcast_to, torch.unflatten, compat._nn_pad), 1),
    **dict.fromkeys((torch.nn.functional.one_hot, torch.nn.functional.pad), 1),
    **dict.fromkeys(_RESIZE, 1),
    **dict.fromkeys((torch.linspace, torch.logspace), 2),
}
_METHODS: Final = frozenset(
    "view reshape expand repeat narrow split chunk roll tile broadcast_to unflatten new_zeros"
    " new_ones new_empty new_full unfold topk kthvalue tril triu".split()
)
#: Take a number out of a tensor of any dimensions with one item, as all of these do in a sequence.
_OF_ANY_DIMENSIONS: Final = frozenset(
    "zeros ones empty rand randn randint randperm eye topk kthvalue tril triu reshape split roll"
    " tile view expand repeat new_zeros new_ones new_empty".split()
)
#: Of the keywords these are no numbers, or tensors for all that is known.
_OTHERS: Final = frozenset(["out", "dtype", "device", "layout", "input", "self", "value"])

Given = dict[str, Any]


def _has_number(value: Value, *, of_any_dimensions: bool = False) -> bool:
    if type(value) is not compat.TensorVariable:
        return False
    example = example_of(value)
    if example.is_complex() or example.dtype is torch.bool:
        return False
    is_single = of_any_dimensions and not example.is_floating_point() and example.numel() == 1
    return example.dim() == 0 or is_single


def _numbers(tx: compat.Tracer, name: str, values: Sequence[Any]) -> list[Value]:
    return [_number(tx, name, each) for each in values]


def _number(tx: compat.Tracer, name: str, value: Value) -> Value:
    """Return an argument of a function or method with numbers in place of tensors of one item."""
    return _without_tensors(tx, value, of_any_dimensions=name in _OF_ANY_DIMENSIONS)


def _without_tensors(tx: compat.Tracer, value: Value, *, of_any_dimensions: bool) -> Value:
    value = value.realize()
    if _has_number(value, of_any_dimensions=of_any_dimensions):
        assert isinstance(value, compat.TensorVariable)
        return scalars.take(tx, value) or value
    if type(value) in (compat.TupleVariable, compat.ListVariable, compat.SizeVariable):
        items = [each.realize() for each in value.items]  # type: ignore[attr-defined]
        if any(_has_number(each, of_any_dimensions=True) for each in items):
            return compat.TupleVariable(
                [_without_tensors(tx, each, of_any_dimensions=True) for each in items]
            )
    return value


#: What drops sizes of one: a compiled graph would not for an unbacked size, as it would not fail
#: for a size of zero (``effects.FAIL_IF_EMPTY``).
_DROPS_ONES: Final = frozenset(["squeeze", "squeeze_"])


def _require_other_sizes(tx: compat.Tracer, name: str, args: Sequence[Any], kwargs: Given) -> None:
    """Have a call made in plain Python if it is given a size for which no graph is traced."""
    if name not in _DROPS_ONES | effects.FAIL_IF_EMPTY or not args:
        return
    number, tensor = int(name in _DROPS_ONES), args[0].realize()
    if not isinstance(tensor, compat.TensorVariable) or not capture_mode.in_mended_code(tx):
        return
    if number == 0 and tx.output.current_tracer.parent is not None:
        return  # the condition of the arm may see to it that there is something
    sizes = example_of(tensor).shape
    places = _dimensions_meant(example_of(tensor), [*args[1:2], *kwargs.values()])
    if not all(
        size_questions.rule_out(tx, sizes[each], number) or _leave_for(tx, tensor, each, number)
        for each in places
    ):
        handlers.break_graph(
            "a size that depends on the data",
            name,
            f"What `{name}` does depends on whether a size is {number}, which is not known.",
        )


def _without_ones(
    tx: compat.Tracer, name: str, args: Sequence[Any], kwargs: Given
) -> Sequence[Any]:
    """Return arguments of ``squeeze`` with a tensor that lacks the sizes known to be one.

    torch itself knows only what holds wherever the graph is used, and not what holds in an arm.
    """
    if name != "squeeze" or len(args) != 1 or kwargs or not capture_mode.in_mended_code(tx):
        return args
    tensor = args[0].realize()
    if isinstance(tensor, compat.TensorVariable):
        sizes = example_of(tensor).shape
        for place in reversed(range(len(sizes))):
            if size_questions.is_surely(tx, sizes[place], 1):
                tensor = tensor.call_method(tx, "select", [constant(place), constant(0)], {})
    return [tensor]


_OF_RUNS: Final = ("input", "return_inverse", "return_counts", "dim")


def _with_dimension_of_runs(
    tx: compat.Tracer, name: str, args: Sequence[Any], kwargs: Given
) -> tuple[Sequence[Any], Given]:
    """Return arguments of ``unique_consecutive`` with a dimension that is counted from the front.

    Of one that is counted from the back torch takes the sizes of the result to be those of the
    argument, and one more (``torch._subclasses.fake_impls._unique``).
    """
    if name != "unique_consecutive" or not capture_mode.in_mended_code(tx):
        return args, kwargs
    given = {key: each.realize() for key, each in zip(_OF_RUNS, args, strict=False)} | kwargs
    tensor, dim = (given.pop(key, constant(None)).realize() for key in ("input", "dim"))
    known = dim.as_python_constant() if dim.is_python_constant() else None
    if not isinstance(tensor, compat.TensorVariable) or type(known) is not int:
        return args, kwargs
    count = example_of(tensor).dim()
    if not -count <= known < 0:
        return args, kwargs
    return [tensor], given | {"dim": constant(known + count)}


def _leave_for(tx: compat.Tracer, tensor: Value, place: int, number: int) -> bool:
    """Have an arm make the call in plain Python for a size; return whether it can."""
    # In no report, since no code was rewritten.
    site = site_table.site_being_traced(tx, tx.f_code, "size", "guard")
    if tx.output.current_tracer.parent is None or not deferred_exceptions.can_exit(tx, site):
        return False
    size = tensor.call_method(tx, "size", [constant(place)], {})
    given = [size, constant(number)]
    is_number = compat.BuiltinVariable(operator.eq).call_function(tx, given, {})
    predicate = deferred_exceptions.predicate_of(tx, site, is_number)
    deferred_exceptions.make_side_exit(tx, site, predicate)
    size_questions.note_fact(tx, is_number, False)
    return True


def _require_item(tx: compat.Tracer, name: str, args: Sequence[Any], kwargs: Given) -> None:
    """Have the graph assert that there is the item that ``select`` is to give."""
    if name != "select" or not args:
        return
    given = dict(zip(("input", "dim", "index"), args, strict=False)) | kwargs
    tensor, at, place = (given.get(each) for each in ("input", "dim", "index"))
    if tensor is None or at is None or place is None or not at.is_python_constant():
        return
    tensor, known = tensor.realize(), at.as_python_constant()
    if isinstance(tensor, compat.TensorVariable) and type(known) is int:
        item_reads.require_item(tx, tensor, known, place.realize())


def _dimensions_meant(example: torch.Tensor, given: Sequence[Value]) -> Sequence[int]:
    """Return the dimensions that a call names; all of them where it names none."""
    if any(isinstance(each.realize(), compat.TensorVariable) for each in given):
        return ()  # the larger of two tensors, number by number
    for each in given:
        known = each.as_python_constant() if each.is_python_constant() else None
        named = known if isinstance(known, (tuple, list)) else (known,)
        if all(type(one) is int and -example.dim() <= one < example.dim() for one in named):
            return list(named)
    return range(example.dim())


_PURPOSE: Final = "data-dependent sizes as arguments"


@hooks.around(compat.TorchInGraphFunctionVariable, methods.CALL_FUNCTION, _PURPOSE)
def _call_function(
    inner: Any, self: Any, tx: compat.Tracer, args: Sequence[Any], kwargs: Given
) -> Any:
    name = str(getattr(self.value, "__name__", ""))
    if getattr(torch, name, None) is self.value:
        args = _without_ones(tx, name, args, kwargs)
        args, kwargs = _with_dimension_of_runs(tx, name, args, kwargs)
        _require_other_sizes(tx, name, args, kwargs)
        _require_item(tx, name, args, kwargs)
    first = _first_number(self.value)
    if first is not None and capture_mode.in_mended_code(tx):
        args = [*args[:first], *_numbers(tx, name, args[first:])]
        kwargs = _with_numbers(tx, name, kwargs)
        if self.value in _RESIZE:
            _require_positive(tx, [*args[1:2], *kwargs.values()])
            _require_something(tx, [*args[:1], *kwargs.values()][0])
    return _with_sizes(tx, inner(self, tx, list(args), kwargs))


def _with_sizes(tx: compat.Tracer, result: Any) -> Any:
    """Return what an operation gives; sizes of it may have been computed in front of the graph."""
    if capture_mode.in_mended_code(tx):
        parts = result.items if type(result) is compat.TupleVariable else [result]
        for each in parts:
            if type(each) is compat.TensorVariable:
                ahead.know_sizes(tx, each)
    return result


def _require_positive(tx: compat.Tracer, given: Sequence[Value]) -> None:
    """Have the graph assert that numbers out of tensors are positive."""
    for each in given:
        value = each.realize()
        items = value.items if isinstance(value, compat.BaseListVariable) else [value]
        numbers = [one.realize() for one in items]
        claimed = [one.sym_num > 0 for one in numbers if is_unbacked(one)]
        size_questions.claim(tx, *claimed)


def _require_something(tx: compat.Tracer, given: Value) -> None:
    """Have the graph assert that there is something to resize; a batch may be empty."""
    tensor = given.realize()
    if isinstance(tensor, compat.TensorVariable):
        sizes = example_of(tensor).shape[1:]
        size_questions.claim(
            tx, *(size > 0 for size in sizes if compat.free_unbacked_symbols(size))
        )


def _first_number(function: Any) -> int | None:
    try:
        return _FUNCTIONS.get(function)
    except TypeError:  # unhashable
        return None


def _with_numbers(tx: compat.Tracer, name: str, given: Given) -> Given:
    return {
        key: value if key in _OTHERS else _number(tx, name, value) for key, value in given.items()
    }


@hooks.around(compat.TensorVariable, methods.CALL_METHOD, _PURPOSE, place=3)
def _call_method(
    inner: Any, self: Any, tx: compat.Tracer, name: str, args: Sequence[Any], kwargs: Given
) -> Any:
    self, *args = _without_ones(tx, name, [self, *args], kwargs)
    (self, *args), kwargs = _with_dimension_of_runs(tx, name, [self, *args], kwargs)
    _require_other_sizes(tx, name, [self, *args], kwargs)
    _require_item(tx, name, [self, *args], kwargs)
    if name in _METHODS and capture_mode.in_mended_code(tx):
        args, kwargs = _numbers(tx, name, args), _with_numbers(tx, name, kwargs)
    return _with_sizes(tx, inner(self, tx, name, args, kwargs))

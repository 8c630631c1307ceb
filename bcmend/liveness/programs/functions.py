"""Functions of torch and of Python that have a handler: changes in place, questions, checks."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bcmend.knowledge import targets
from bcmend.liveness.program import Arguments, program
from bcmend.liveness.programs.numbers import with_a_number

Function = Callable[..., Any]


def _row(function: Any) -> str:
    return f"functions[{function.__name__}]"


#: What stands for an argument of an operator, by the name of its type, or by its own.
_GIVEN: dict[str, Callable[[Tensor], Any]] = {
    "Tensor": lambda x: torch.ones(()),
    "number": lambda x: 0.5,
    "float": lambda x: 0.5,
    "bool": lambda x: False,
    "List[Tensor]": lambda x: [x.abs() / 8 + 0.25],
    "state_steps": lambda x: [torch.ones(())],
    "max_exp_avg_sqs": lambda x: [],
}


def _arguments(function: Any) -> tuple[list[str], dict[str, str]]:
    """Return what the first overload has to be given behind the list, by position and by name."""
    packet = getattr(torch.ops.aten, function.__name__)
    schema = getattr(packet, packet.overloads()[0])._schema
    needed = [each for each in schema.arguments[1:] if not each.has_default_value()]
    kinds = {each.name: each.name if each.name in _GIVEN else str(each.type) for each in needed}
    positional = [kinds.pop(each.name) for each in needed if not each.kwarg_only]
    return positional, kinds


@program(*map(_row, targets.CHANGING_LISTS))
def lists_changed_in_place() -> Function:
    calls = [(function, *_arguments(function)) for function in targets.CHANGING_LISTS]

    def program(x: Tensor) -> Any:
        found = []
        for function, positional, named in calls:
            y = x.abs() / 8 + 0.25
            print("before", y)
            given = [_GIVEN[kind](x) for kind in positional]
            function([y], *given, **{name: _GIVEN[kind](x) for name, kind in named.items()})
            found.append(y)
        return found

    return program


@program(
    "functions[batch_norm]",
    "functions[native_batch_norm]",
    "functions[instance_norm]",
    inputs=lambda: [(torch.arange(12.0).reshape(2, 2, 3) * sign,) for sign in (1, -1)],
)
def statistics_of_norms() -> Function:
    mean, deviation = torch.zeros(2), torch.ones(2)

    def program(x: Tensor) -> Any:
        print("before", mean, deviation)
        found = [
            functional.batch_norm(x, mean, deviation, training=True),
            torch.batch_norm(x, None, None, mean, deviation, True, 0.1, 1e-5, False),
            torch.native_batch_norm(x, None, None, mean, deviation, True, 0.1, 1e-5)[0],
            torch.ops.aten.native_batch_norm(x, None, None, mean, deviation, True, 0.1, 1e-5)[0],
            functional.instance_norm(x, mean, deviation),
            torch.instance_norm(x, None, None, mean, deviation, True, 0.1, 1e-5, False),
        ]
        print("after", mean, deviation)
        return found

    return program


@program("TensorVariable.method_attr_data")
def a_change_by_data() -> Function:
    def program(x: Tensor) -> Any:
        y = x * 2
        print("before", y)
        y.data.add_(1)
        print("after", y)
        return y

    return program


@program("functions[is_compiling]", "functions[is_dynamo_compiling]", fullgraph=False)
def questions_whether_it_is_compiled() -> Function:
    def program(x: Tensor) -> Any:
        x = x + 1 if x.sum() > 0 else x - 1
        is_either = torch.compiler.is_compiling() or torch.compiler.is_dynamo_compiling()
        return x * 1 if is_either and torch.compiler.is_dynamo_compiling() else x

    return program


@program("InstructionTranslatorBase.DICT_MERGE")
def keywords_that_are_merged() -> Function:
    def program(x: Tensor) -> Any:
        more = {"other": 2}
        if x.sum() > 0:
            x = torch.add(x, **more)
        return x * 1, dict(one=1, **more)

    return program


@program("functions[get_default_device]")
def the_default_device() -> Function:
    def program(x: Tensor) -> Any:
        return x + torch.zeros(3, device=torch.get_default_device())

    return program


@program("functions[dropout]")
def dropout_that_drops_nothing() -> Function:
    def program(x: Tensor) -> Any:
        y = x * 2
        z = x - 1
        if x.sum() > 0:
            z = functional.dropout(y, 0.5, training=False) + torch.dropout(y, 0.5, False)
        return z, y

    return program


@program(
    "functions[equal]",
    "functions[allclose]",
    "functions[is_nonzero]",
    "Tensor.equal",
    "Tensor.allclose",
    "Tensor.is_nonzero",
)
def questions() -> Function:
    def program(x: Tensor) -> Any:
        y = x.abs()
        found = torch.equal(x, y), torch.allclose(x, y), torch.is_nonzero(x[0] - 1)
        methods = x.equal(y), x.allclose(y, atol=0.5), (x[0] - 1).is_nonzero()
        return (x + 1 if torch.equal(x, y) else x - 1), found, methods

    return program


@program("PolyfilledFunctionVariable.call_function")
def any_and_all() -> Function:
    def program(x: Tensor) -> Any:
        return (x + 1 if any(each > 2 for each in x) else x - 1), all([x[0] > 0, x[1] > 0])

    return program


_OF_MATH = (
    math.sqrt, math.log2, math.asin, math.acos, math.sin, math.cos, math.tan, math.sinh, math.cosh,
)  # fmt: skip


@program("functions of `math` of numbers out of tensors")
def functions_of_numbers() -> Function:
    def program(x: Tensor) -> Any:
        y = x + 1 if x.sum() > 0 else x - 1
        part = x.abs().max().item() / 8
        found = math.sqrt(part), math.sin(y[0].item()), math.exp(y[1]), math.floor(y[2])
        return y + math.log(part, 2), found

    return program


@program(*map(_row, _OF_MATH), inputs=with_a_number, fullgraph=False)
def functions_of_numbers_of_arguments() -> Function:
    def program(x: Tensor, number: int) -> Any:
        y = x + 1 if x.sum() > 0 else x - 1
        # Python 3.12 inlines other comprehensions, and torch leaves loops with breaks to it.
        return y, list(function(1 / number) for function in _OF_MATH)  # noqa: C400

    return program


@program("functions[_assert]")
def an_assertion_of_torch_behind_a_branch() -> Function:
    def program(x: Tensor) -> Any:
        y = x + 1 if x[0] > 0 else x - 1
        torch._assert(x.sum() > -1, "below")
        return y

    return program


@program("TorchInGraphFunctionVariable.call_function")
def an_assertion_of_torch() -> Function:
    def program(x: Tensor) -> Any:
        torch._assert(x.sum() > -1, "below")
        return x + 1

    return program


_CHECKS = (
    torch._check, torch._check_index, torch._check_value, torch._check_type,
    torch._check_not_implemented, torch._check_tensor_all,
)  # fmt: skip
_CHECKS_WITH = torch._check_with, torch._check_tensor_all_with


def without_truths() -> list[Arguments]:
    """Calls with a vector and checks that fail, since they are given no truth."""
    checks = [*_CHECKS, *(functools.partial(check, KeyError) for check in _CHECKS_WITH)]
    return [(torch.ones(3), check) for check in checks]


@program(*map(_row, (*_CHECKS, *_CHECKS_WITH)), inputs=without_truths, fullgraph=False)
def checks_of_no_truth() -> Function:
    def program(x: Tensor, check: Any) -> Any:
        y = x * 2 if x.sum() > 0 else x - 1
        check(1, lambda: f"no truth beside {x}")
        return y

    return program


@program()
def checks() -> Function:
    def program(x: Tensor) -> Any:
        torch._check(x.sum().item() > -1, lambda: f"{x.sum()} is low")
        torch._check_tensor_all(x > -5, lambda: f"{x.min()} is low")
        return x + 1

    return program


class Factor:
    def __init__(self, factor: Tensor) -> None:
        self.factor = factor

    def __mul__(self, other: Tensor) -> Tensor:
        return self.factor * other

    def __rsub__(self, other: Tensor) -> Tensor:
        return other / self.factor


@program("`object * tensor`")
def operators_of_an_object() -> Function:
    def program(x: Tensor) -> Any:
        factor = Factor(x + 4)
        return factor * x if x.sum() > 0 else x - factor

    return program


class Counted:
    """What a program makes, with a method whose decorator counts its calls."""

    @staticmethod
    def counting(method: Function) -> Function:
        calls: list[int] = []

        def counted(self: Counted, x: Tensor) -> Any:
            calls.append(len(calls))
            return method(self, x), list(calls)

        return counted

    def doubled(self, x: Tensor) -> Any:
        return x * 2


@program("UserFunctionVariable.bind_args")
def methods_under_decorators() -> Function:
    kind = type("Counting", (Counted,), {"doubled": Counted.counting(Counted.doubled)})

    def program(x: Tensor) -> Any:
        return kind().doubled(x + 1 if x.sum() > 0 else x - 1)

    return program

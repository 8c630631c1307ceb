"""What stops the first trace of code that waits to be mended."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy
import torch
from torch import Tensor

from bcmend.dynamo import compat
from bcmend.liveness.program import program

Function = Callable[..., Any]


@program(
    "CatchErrorsWrapper.__call__",
    "InstructionTranslatorBase.run",
    "InstructionTranslatorBase.call_function",
    "OutputGraph.compile_subgraph",
    "OutputGraph.call_user_compiler",
    "OutputGraph.install_global_unsafe",
    "InstructionTranslatorBase.step",
    "SubgraphTracer.create_node",
    "convert_frame.trace_frame",
    "convert_frame.compile_frame",
    "operators[bcmend_data_dependent]",
    "operators[bcmend_branch]",
)
def a_branch() -> Function:
    def program(x: Tensor) -> Any:
        return x + 1 if x.sum() > 0 else x - 1

    return program


@program("what mended code reads of a module that was imported anew")
def a_function_of_a_module_that_was_imported_anew() -> Function:
    code = "def make(branch):\n    return lambda x: branch(x + 1 if x.mean() > 0 else x) * 2\n"
    older, caller = ModuleType("imported_anew"), ModuleType("calls_what_was_imported_anew")
    branch = "def branch(x):\n    if x.sum() > 0:\n        return x + 1\n    return x - 1\n"
    exec(compile(branch, older.__name__, "exec"), vars(older))
    exec(compile(code, caller.__name__, "exec"), vars(caller))
    sys.modules[older.__name__] = ModuleType(older.__name__)
    sys.modules[caller.__name__] = caller
    found: Function = vars(caller)["make"](vars(older)["branch"])
    return found


@program("begin at functions that a context of torch decorates")
def a_decorated_branch() -> Function:
    @torch.no_grad()
    def program(x: Tensor) -> Any:
        return x + 1 if x.sum() > 0 else None

    return program


@program("symbolic_convert._detect_and_normalize_assert_statement")
def an_assertion() -> Function:
    def program(x: Tensor) -> Any:
        assert x.sum() > -1, "below"
        return x + 1

    return program


@program("NumpyVariable.call_function", fullgraph=False)
def draws_of_numpy() -> Function:
    def program(x: Tensor) -> Any:
        return x + float(numpy.random.uniform())

    return program


@program("NumpyVariable.call_function")
def numbers_that_numpy_computes() -> Function:
    def program(x: Tensor) -> Any:
        return x * numpy.sqrt(int((x > 0).sum()))

    return program


@program("BuiltinVariable.call_isinstance")
def whether_it_is_a_variable() -> Function:
    def program(x: Tensor) -> Any:
        return x + 1 if isinstance(x, torch.autograd.Variable) else x - 1

    return program


@program("BuiltinVariable.call_str")
def a_text_of_an_exception() -> Function:
    def program(x: Tensor) -> Any:
        try:
            raise ValueError("one", 2)
        except ValueError as error:
            return x + 1, str(error)

    return program


def by_a_caller(program: Any, options: dict[str, Any]) -> Function:
    """Compile code that is not patched, and calls the program."""

    def caller(*arguments: Any) -> Any:
        return program(*arguments)

    return torch.compile(caller, **options)


@program(
    "InstructionTranslatorBase.log_graph_break",
    "operators[bcmend_entered]",
    fullgraph=False,
    way=by_a_caller,
)
def called_by_other_code() -> Function:
    def program(x: Tensor) -> Any:
        return x + 1 if x.sum() > 0 else x - 1

    return program


class Positive(torch.nn.Module):
    """A module with a branch."""

    def forward(self, x: Tensor) -> Any:
        """Return what depends on a sum."""
        return x + 1 if x.sum() > 0 else x - 1


def exported(program: Any, options: dict[str, Any]) -> Function:
    """Export the program as Dynamo traces it, at each call."""
    return lambda x: torch.export.export(program, (x,), strict=True).module()(x)


def exported_as_it_runs(program: Any, options: dict[str, Any]) -> Function:
    """Export the program as it runs on fake tensors, at each call."""
    return lambda x: torch.export.export(program, (x,), strict=False).module()(x)


@program("convert_frame.compile_frame", "_trace._strict_export", way=exported)
def an_export() -> Positive:
    return Positive()


@program("_trace._non_strict_export", way=exported_as_it_runs)
def an_export_without_dynamo() -> torch.nn.Module:
    return torch.nn.ReLU()


def with_packages(program: Any, options: dict[str, Any]) -> Function:
    """Compile the program where torch looks for packages of precompiled code."""
    with compat.dynamo_config.patch(caching_precompile=True):
        return torch.compile(program, **options)


@program("DiskDynamoCache.load", way=with_packages)
def a_branch_for_which_there_may_be_a_package() -> Function:
    def program(x: Tensor) -> Any:
        return x + 1 if x.sum() > 0 else x - 1

    return program


@program(
    "numbers among items",
    "stop at a number looked for among sizes: torch compares constants alone",
    inputs=lambda: [(torch.ones(count),) for count in (3, 5, 4, 6)],
)
def a_number_among_sizes() -> Function:
    def program(x: Tensor) -> Any:
        return x + 1 if 4 in [len(x), 9] else x - 1

    return program

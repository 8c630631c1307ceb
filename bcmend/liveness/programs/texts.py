"""Texts with data-dependent parts, and output."""

from __future__ import annotations

import logging
import re
import threading
import warnings
from collections.abc import Callable
from typing import Any

from torch import Tensor

from bcmend.liveness.outcome import LOGGER
from bcmend.liveness.program import Arguments, beside, program

Function = Callable[..., Any]


@program(
    "ConstantVariable.sq_concat_impl",
    "StringFormatVariable.sq_concat_impl",
    "ConstantVariable.call_method:join",
    "BuiltinVariable.call_format",
    "BuiltinVariable.call_repr",
)
def texts_of_numbers() -> Function:
    def program(x: Tensor) -> Any:
        first, last = x[0].item(), x[2].item()
        text = "first " + f"{first}" + "!"
        joined = ", ".join([text, f"{last}", str(first), repr(last)])
        y = x + 1
        formatted = "{} and {} of {}".format(first, last, y)
        y.add_(1)
        return y, text, joined, formatted

    return program


@program("names of functions", "classes that output changes")
def names_of_functions() -> Function:
    def program(x: Tensor) -> Any:
        print(with_numbers.__name__, with_numbers.__doc__, Holder.__doc__)
        return x + 1 if x.sum() > 0 else x - 1

    return program


@program("ConstantVariable.mp_subscript_impl")
def characters_at_places() -> Function:
    def program(x: Tensor) -> Any:
        places = x.argsort().tolist()
        return x + 1, "".join("abc"[each] for each in places)

    return program


@program("ConstantLikeVariable.call_method")
def what_expressions_find() -> Function:
    expression = re.compile(r"(?P<part>\w+)\.")

    def program(x: Tensor) -> Any:
        found = [each.groupdict() for each in expression.finditer("layer.weight.")]
        return (x + 1 if x.sum() > 0 else x - 1), found

    return program


def with_numbers() -> list[Arguments]:
    """Calls with a vector and a number that differs."""
    return [(*each, at) for each, at in zip(beside()(), (1, 4, 5), strict=True)]


@program("InstructionTranslatorBase._format_value", inputs=with_numbers)
def a_text_of_an_argument() -> Function:
    def program(x: Tensor, number: int) -> Any:
        y = x * number if x.sum() > 0 else x - number
        return y, f"{number} and {number:>4}"

    return program


@program("HashableTracker.__init__")
def texts_as_keys() -> Function:
    def program(x: Tensor) -> Any:
        counts: dict[str, int] = {}
        for place in range(3):
            key = f"below {int(x[place]) // 10}"
            counts[key] = counts.get(key, 0) + 1
        return x + 1, counts

    return program


@program("operators[bcmend_record]", "operators[bcmend_recording]", "operators[bcmend_branch]")
def printed() -> Function:
    def program(x: Tensor) -> Any:
        y = x * 2
        if x.sum() > 0:
            print("above", y.sum(), x.shape)
            y.add_(1)
        else:
            print("below", y, sep=": ", end=".\n")
        print("after", y.sum().item())
        return y

    return program


@program("UserFunctionVariable.call_function", "LoggingLoggerVariable.call_method:isEnabledFor")
def logged() -> Function:
    def program(x: Tensor) -> Any:
        logger = logging.getLogger("bcmend.liveness.programs")
        if x.sum() > 0:
            logger.warning("sum %s", x.sum())
        if LOGGER.isEnabledFor(logging.DEBUG):
            LOGGER.debug("never %s", x)
        LOGGER.error("all of %s", x)
        return x + 1

    return program


@program()
def warned() -> Function:
    def program(x: Tensor) -> Any:
        if x.sum() > 0:
            warnings.warn(f"sum {x.sum()}")
        warnings.warn("always", FutureWarning)
        return x + 1

    return program


class Shown:
    """An object that counts how often its text is made."""

    def __init__(self) -> None:
        self.count = 1

    def __repr__(self) -> str:
        self.count += 1
        return f"Shown({self.count})"


@program("UserDefinedObjectVariable.generic_getattr", inputs=beside(Shown), fullgraph=False)
def an_object_that_output_changes() -> Function:
    def program(x: Tensor, shown: Shown) -> Any:
        y = x + 1 if x.sum() > 0 else x - 1
        print(shown)
        return y * shown.count

    return program


class Holder:
    """An object that has a text, and shows it."""

    def __init__(self) -> None:
        self.count = 1

    def __repr__(self) -> str:
        return f"Holder({self.count})"


@program(inputs=beside(Holder))
def an_object_that_is_shown() -> Function:
    def program(x: Tensor, holder: Holder) -> Any:
        if x.sum() > 0:
            holder.count = holder.count + 1
        print(holder, repr(holder), str(holder.count))
        return x + holder.count

    return program


@program(
    "`with lock:`",
    inputs=beside(threading.Lock),
    fullgraph=False,
)
def a_lock() -> Function:
    def program(x: Tensor, lock: Any) -> Any:
        with lock:
            y = x * 2
        return y + 1 if y.sum() > 0 else y - 1

    return program


@program("ContextWrappingVariable.exit")
def a_block_of_warnings() -> Function:
    def program(x: Tensor) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.warn("hidden", stacklevel=1)
        return x + 1 if x.sum() > 0 else x - 1

    return program


@program("the attributes that an object has", inputs=beside(Holder))
def attributes_of_an_object() -> Function:
    def program(x: Tensor, holder: Holder) -> Any:
        holder.count = holder.count + 1
        found = len(holder.__dict__), "more" in holder.__dict__
        return (x + 1 if x.sum() > 0 else x - 1), found

    return program


@program("BuiltinVariable.call_locals", "BuiltinVariable.call_vars", inputs=beside(Holder))
def names_of_a_frame() -> Function:
    def program(x: Tensor, holder: Holder) -> Any:
        number = x.sum().item()
        return x * number, sorted(locals()), sorted(vars()), vars(holder)["count"]

    return program


@program("InstructionTranslatorBase.step_graph_break", inputs=beside(list), fullgraph=False)
def an_argument_deleted_before_a_graph_break() -> Function:
    def program(x: Tensor, items: Any) -> Any:
        y = x + 1 if x.sum() > 0 else x - 1
        del items
        is_same = id(x) == id(y)  # such numbers leave no graph
        try:
            return y, is_same, items  # noqa: F821
        except UnboundLocalError:
            return y, is_same, "deleted"

    return program

"""The protocol of handlers, which answer calls and operations that Dynamo traces.

A handler is given a ``Call`` and returns Dynamo's model of the result, or ``PASS`` to leave the
call to the next handler and in the end to Dynamo. It may raise ``Refusal`` to say why it leaves it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from bcmend.dynamo import compat, hooks
from bcmend.dynamo.models import methods


class Pass:
    """The type of ``PASS``."""

    def __repr__(self) -> str:
        return "PASS"


#: Returned by a handler that leaves a call to others.
PASS: Final = Pass()


@dataclass(frozen=True, slots=True)
class Call:
    """A call being traced.

    Attributes:
        tx: the translator of the frame that makes it.
        owner: the model of what it is a method of; not among ``args``.
        function: the callable, if it is no method of a traced value.
    """

    tx: compat.Tracer
    name: str
    owner: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    function: Any = None


Answer = compat.VariableTracker | Pass
Handler = Callable[[Call], Answer]


def break_graph(kind: str, context: str, explanation: str, **more: Any) -> NoReturn:
    """End the graph here, as Dynamo does at what it cannot trace; ``more`` as Dynamo has it."""
    more.setdefault("hints", [*compat.graph_break_hints.FUNDAMENTAL])
    compat.unimplemented(
        gb_type=f"bcmend: {kind}", context=context, explanation=explanation, **more
    )


def method(owner: type, name: str, purpose: str, *, place: int = 0) -> Callable[[Handler], Handler]:
    """Declare a handler in front of a method of one of Dynamo's models."""

    def declare(handler: Handler) -> Handler:
        def ask(inner: Any, variable: Any, tx: compat.Tracer, *args: Any, **kwargs: Any) -> Any:
            answer = handler(Call(tx, name, variable, args, kwargs))
            return inner(variable, tx, *args, **kwargs) if isinstance(answer, Pass) else answer

        ask.__module__ = handler.__module__  # that is where it is declared
        hooks.around(owner, name, purpose, place=place)(ask)
        return handler

    return declare


#: Handlers of methods of tensors by name, each with its place.
TENSOR_METHODS: Final[dict[str, list[tuple[int, Handler]]]] = {}


def tensor_method(name: str, *, place: int = 0) -> Callable[[Handler], Handler]:
    """Declare a handler of a method of tensors; the highest place is asked first."""

    def declare(handler: Handler) -> Handler:
        rows = TENSOR_METHODS.setdefault(name, [])
        rows.append((place, handler))
        rows.sort(key=lambda each: -each[0])
        return handler

    return declare


@hooks.around(compat.TensorVariable, methods.CALL_METHOD, "methods of tensors")
def _call_tensor_method(
    inner: Any, tensor: compat.TensorVariable, tx: compat.Tracer, name: str, args: Any, kwargs: Any
) -> Any:
    handlers = TENSOR_METHODS.get(name, ())
    if handlers and not compat.can_dispatch_torch_function(tx, (tensor, *args), kwargs):
        given = {key: value.realize() for key, value in kwargs.items()}
        for _, handler in handlers:
            answer = handler(Call(tx, name, tensor, tuple(args), given))
            if not isinstance(answer, Pass):
                return answer
    return inner(tensor, tx, name, args, kwargs)


def _store_item(inner: Any, tensor: Any, tx: compat.Tracer, key: Any, value: Any) -> Any:
    """Model ``tensor[key] = value`` as a call of its method, to which handlers belong."""
    if value is None:
        return inner(tensor, tx, key, value)
    return tensor.call_method(tx, "__setitem__", [key, value], {})


if methods.ASSIGN_SUBSCRIPT in vars(compat.TensorVariable):  # as torch 2.13 does without
    hooks.around(compat.TensorVariable, methods.ASSIGN_SUBSCRIPT, "stores to items of tensors")(
        _store_item
    )


@dataclass(frozen=True, slots=True)
class Read:
    """What reads an attribute of a value that it is given.

    Attributes:
        name: of the attribute; ``None`` if Dynamo does not know it.
        plain: reads it as without the default of the read.
    """

    name: str | None
    full: Callable[[Any], Any]
    plain: Callable[[Any], Any]

    def __call__(self, owner: Any) -> Any:
        return self.full(owner)


#: Is given what reads an attribute of a value, the translator, the value whose attribute is read,
#: and the default of the read or ``None``.
Reading = Callable[[Read, Any, Any, Any], Any]


def attribute_read(purpose: str, *, place: int = 0) -> Callable[[Reading], Reading]:
    """Declare what stands in front of reads of attributes, in code or by ``getattr``."""

    def declare(reading: Reading) -> Reading:
        def of_builtin(inner: Any, builtin: Any, tx: compat.Tracer, args: Any, kwargs: Any) -> Any:
            def read(count: int | None) -> Callable[[Any], Any]:
                return lambda owner: inner(builtin, tx, [owner, *args[1:count]], kwargs)

            is_known = args[1].is_python_constant()
            name = args[1].as_python_constant() if is_known else None
            return reading(Read(name, read(None), read(2)), tx, args[0], (*args, None, None)[2])

        def of_function(
            inner: Any, tx: compat.Tracer, owner: Any, name: str, default: Any = None
        ) -> Any:
            given = () if default is None else (default,)
            read = Read(
                name,
                lambda owner: inner(tx, owner, name, *given),
                lambda owner: inner(tx, owner, name),
            )
            is_value = isinstance(default, compat.VariableTracker)
            return reading(read, tx, owner, default if is_value else None)

        if hasattr(compat.object_protocol, methods.READ_ATTRIBUTE):
            protocol, name = compat.object_protocol, methods.READ_ATTRIBUTE
            hooks.around(protocol, name, purpose, gate=hooks.first, place=place)(of_function)
        else:  # torch 2.13
            owner, name = compat.GetAttrBuiltinVariable, methods.CALL_GETATTR
            hooks.around(owner, name, purpose, place=place)(of_builtin)
        return reading

    return declare


def function(target: Any, purpose: str, *, is_last: bool = False) -> Callable[[Handler], Handler]:
    """Declare a handler of a function of torch; ``is_last`` to ask it only after Dynamo's own."""

    def declare(handler: Handler) -> Handler:
        def ask(before: Any, called: Any, tx: compat.Tracer, *args: Any, **kwargs: Any) -> Any:
            if is_last and before is not None:
                return before(called, tx, *args, **kwargs)
            answer = handler(Call(tx, target.__name__, None, args, kwargs, target))
            if isinstance(answer, Pass):
                return None if before is None else before(called, tx, *args, **kwargs)
            return answer

        ask.__module__ = handler.__module__
        hooks.row(target, purpose)(ask)
        return handler

    return declare

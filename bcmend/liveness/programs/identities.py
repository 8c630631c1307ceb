"""Which object a value is, which attributes it has, and what classes it is of."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from bcmend.liveness.program import Arguments, beside, program, signs

Function = Callable[..., Any]


@program("BuiltinVariable._comparison_with_tensor")
def whether_it_is_another() -> Function:
    def program(x: Tensor) -> Any:
        y = x * 2
        z = y if x.sum() > 0 else x
        return z + 1, z is y, y is not x

    return program


@program("which object a merged tuple is", fullgraph=False)
def whether_a_tuple_is_another() -> Function:
    def program(x: Tensor) -> Any:
        y = (x * 2, 1)
        z = y if x.sum() > 0 else (x, 1)
        return z[0] + 1, z is y, y is not z

    return program


@program("which object a merged tensor is", fullgraph=False)
def whether_it_is_among_others() -> Function:
    def program(x: Tensor) -> Any:
        y = x.sum() if x[0] > 0 else x.min()
        return x + 1 if y in [y, x.max()] else x - 1

    return program


@program("TensorVariable.hash_impl", "BuiltinVariable.call_id", fullgraph=False)
def keys() -> Function:
    def program(x: Tensor) -> Any:
        y = x * 2
        z = x + 1 if x.sum() > 0 else x - 1
        return {y: 1}[y], y in {y, x}, id(y) == id(y), id(x) == id(y), z

    return program


@program("TensorVariable.hash_impl", fullgraph=False)
def members_of_a_set() -> Function:
    def program(x: Tensor) -> Any:
        y = x * 2
        z = y if x.sum() > 0 else x
        return len({y, z}), z in {y: 1}

    return program


@program("BuiltinVariable.call_id", fullgraph=False)
def numbers_of_objects() -> Function:
    def program(x: Tensor) -> Any:
        y = x * 2
        z = y if x.sum() > 0 else x
        return y + 1, id(z) == id(y)

    return program


@program("SetAttrBuiltinVariable._call_setattr", fullgraph=False)
def an_attribute_of_one_of_two_tensors() -> Function:
    def program(x: Tensor) -> Any:
        y = x * 2
        z: Any = y if x.sum() > 0 else x * 3
        z.tag = "seen"
        return y + 1, getattr(y, "tag", "not seen")

    return program


@program("SetAttrBuiltinVariable._call_setattr", "Tensor.detach_")
def attributes_of_tensors() -> Function:
    def program(x: Tensor) -> Any:
        y = x * 2 if x.sum() > 0 else x - 1
        y.tag = "seen"
        z = torch.zeros(3)
        z.requires_grad = False
        y.detach_()
        return y + z, y.tag

    return program


@program("SetAttrBuiltinVariable._call_setattr", "TensorVariable.method_attr_data")
def a_store_to_data() -> Function:
    total = torch.zeros(3)

    def program(x: Tensor) -> Any:
        if x.sum() > 0:
            total.data = x * 2
        return x + total

    return program


class Holder:
    """An object without attributes."""


@program("attributes that objects do not have", "SideEffects.load_attr")
def attributes_that_one_side_has() -> Function:
    def program(x: Tensor) -> Any:
        holder: Any = Holder()
        if x.sum() > 0:
            holder.more = x * 2
        return getattr(holder, "more", x - 1), getattr([], "more", 3)

    return program


@program("PyCodegen.add_cache", "PyCodegen.__call__")
def a_queue_that_changes_before() -> Function:
    queue = deque([1])

    def program(x: Tensor) -> Any:
        queue.append(2)
        if x.sum() > 0:
            queue.append(3)
        made = Holder()
        return x + 1, queue, made

    return program


@program(
    "SideEffects.codegen_update_mutated",
    "SideEffects._track_obj",
    "SideEffects.track_mutable",
    "DequeVariable.call_method",
)
def a_limited_queue() -> Function:
    queue = deque([1, 2], maxlen=2)

    def program(x: Tensor) -> Any:
        if x.sum() > 0:
            queue.appendleft(3)
        return x + len(queue), queue, queue.copy()

    return program


@program("WeakRefVariable.build")
def a_weak_reference_that_stays() -> Function:
    holder: Any = Holder()
    holder.reference = weakref.ref(holder)

    def program(x: Tensor) -> Any:
        kept = holder.reference
        if x.sum() > 0:
            kept = None
        return x + 1, isinstance([kept][0], weakref.ref)

    return program


class Counted(torch.nn.Module):
    """A module with a buffer and an attribute that its calls change."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))
        self.calls = 0
        self.last: Any = None

    def forward(self, x: Tensor) -> Any:
        """Return what depends on the calls before."""
        self.calls += 1
        if x.sum() > 0:
            self.total += x
            self.last = x * 2
        else:
            self.last = None
        return x + self.total


@program()
def attributes_and_buffers_of_a_module() -> Counted:
    return Counted()


class Forgetful(torch.nn.Module):
    """A module that deletes an attribute on one side of a branch."""

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)

    def forward(self, x: Tensor) -> Any:
        """Return what is there."""
        self.kept = x + 1
        if x.sum() > 0:
            del self.kept
        return getattr(self, "kept", x) * 3


@program("SuperVariable.call_method:__delattr__")
def an_attribute_that_is_deleted() -> Forgetful:
    return Forgetful()


@program("BuiltinVariable.call_isinstance")
def variables() -> Function:
    def program(x: Tensor) -> Any:
        is_variable = isinstance(x, torch.autograd.Variable)
        return (x + 1 if is_variable and x.sum() > 0 else x - 1), is_variable

    return program


def _base() -> tuple[Any, list[str]]:
    """Return a class, and what gets the names of its subclasses."""
    made: list[str] = []

    class Base:
        def __init_subclass__(cls) -> None:
            made.append(cls.__name__)

    return Base, made


@program("BuiltinVariable.call___build_class__", fullgraph=False)
def classes_in_an_arm() -> Function:
    base: Any
    base, made = _base()

    def program(x: Tensor) -> Any:
        if x.sum() > 0:

            class Made(base):  # type: ignore[misc]
                pass

            x = x + 1
        return x * 2, list(made)

    return program


def negative_first() -> Sequence[Arguments]:
    """Calls with vectors of negative and of positive sum; torch makes a class once for all."""
    positive, negative, _ = signs()
    return negative, positive


@program("BuiltinVariable._make_handler", inputs=negative_first, fullgraph=False)
def classes_made_by_a_call_in_an_arm() -> Function:
    base, made = _base()

    def program(x: Tensor) -> Any:
        if x.sum() > 0:
            type("Made", (base,), {})
            x = x + 1
        return x * 2, list(made)

    return program


@program("symbolic_convert.__import__", fullgraph=False)
def a_module_in_an_arm() -> Function:
    def program(x: Tensor) -> Any:
        if x.sum() > 0:
            import colorsys

            return x + colorsys.ONE_THIRD
        return x - 1

    return program


class Forwarding:
    """Answers for some attributes that it does not have."""

    def __getattr__(self, name: str) -> Any:
        if name != "shift":
            raise AttributeError(name)
        return 2.0


@program(
    "UserDefinedObjectVariable.call_obj_hasattr",
    "attributes that code of the program answers for",
    inputs=beside(Forwarding),
)
def attributes_that_are_answered_for() -> Function:
    def program(x: Tensor, owner: Any) -> Any:
        if x.sum() > 0 and hasattr(owner, "shift"):
            x = x + owner.shift
        return x * getattr(owner, "scale", 3.0), hasattr(owner, "scale")

    return program


@program("VariableBuilder._wrap", fullgraph=False)
def a_list_in_a_tuple_of_a_module() -> Function:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.items = [0]
            self.pair = (self.items, 0)

        def forward(self, x: Tensor) -> Any:
            self.pair[0].append(1)
            return x + len(self.items) if x.sum() > 0 else x - len(self.items)

    return Counting()


class Plain:
    """An object that is equal to itself alone."""


def _lists_that_become_one() -> list[Arguments]:
    first, *others = signs()
    one: list[int] = []
    return [(*first, [], []), *((*each, one, one) for each in others)]


@program(
    "objects that have to stay two",
    "object_protocol.vt_identity_compare",
    inputs=_lists_that_become_one,
)
def lists_that_become_one() -> Function:
    def program(x: Tensor, one: list[Any], other: list[Any]) -> Any:
        one.append(1)
        if x.sum() > 0:
            x = x + len(other)
        return x * 2, one is other, Plain() == one

    return program


@program("which truth one is")
def whether_a_flag_is_true() -> Function:
    def program(x: Tensor) -> Any:
        flag, other = (x[0] > 0).item(), (x[1] > 0).item()
        if x.sum() > 0:
            x = x + 1
        return x * 2, flag is True, flag is not other, None is flag

    return program

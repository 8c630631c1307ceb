"""Plan one store for the stores of the two arms to an attribute or a variable of an outer scope.

Where the sides have no common form the place holds both of them until the graph has run, when a
record stores the one taken; a variable of a frame that has ended by then needs no record.
"""

from __future__ import annotations

import dis
import functools
import inspect
from collections.abc import Sequence
from types import FunctionType, ModuleType
from typing import Any, Final

import torch

from bcmend.bytecode.decode import operation
from bcmend.bytecode.opcodes import ATTRIBUTE_STORES
from bcmend.delivery import records
from bcmend.dynamo import compat, frames, handlers, hooks
from bcmend.dynamo.handlers import PASS, Answer, Call
from bcmend.dynamo.models import containers, methods, objects
from bcmend.dynamo.values import Value, object_behind
from bcmend.knowledge.static_lookup import ancestors, dictionary, namespace
from bcmend.tracing.merging.lazy_phi import CellPhi, LazyPhi, MissingAttribute, StoredPhi
from bcmend.tracing.merging.location_phi import (
    BothSides,
    LocationPhi,
    OneValue,
    may_outlive_its_graph,
    one_number,
    require_no_earlier_history,
)
from bcmend.tracing.merging.merge import Join
from bcmend.tracing.output import record_builder
from bcmend.tracing.search.assumptions import Claim
from bcmend.tracing.sites import nesting_limits
from bcmend.tracing.sites.locations import Location
from bcmend.tracing.sites.phi import Phi
from bcmend.tracing.sites.refusal import Refusal
from bcmend.tracing.sites.session import SESSION
from bcmend.tracing.speculation.arms import ArmTrace


def attribute_changes(join: Join, arms: tuple[ArmTrace, ArmTrace]) -> list[LocationPhi]:
    """Plan one store for each attribute that an arm stores to. Raises ``Refusal``."""
    changes = []
    for location in dict.fromkeys(place for arm in arms for place in arm.effects.attributes):
        place = location.owner, location.key
        sides = [arm.effects.attributes.get(location) for arm in arms]
        present = _present_attribute(join.tx, *place) if None in sides else None
        nothing = compat.DeletedVariable()
        one, other = (side or present or nothing for side in sides)
        is_missing = any(isinstance(each, compat.DeletedVariable) for each in (one, other))
        if is_missing and not _is_computed(join.tx, *place):
            _guard_presence(*place)
        inherited = sides.index(None) if None in sides and _is_inherited(join.tx, *place) else -1
        changes.append(_attribute_change(join, location, (one, other), inherited))
    return changes


def _attribute_change(
    join: Join, location: Location, sides: tuple[Value, Value], inherited: int
) -> LocationPhi:
    """Plan the store of a merged value, or of each side's own when the graph has run."""
    # A merged value would give the object an attribute that on one side only its class has.
    is_apart = join.site.holds(Claim.READ_APART, join.form) and record_builder.is_open(join.tx)
    may_merge = inherited < 0 or not is_apart
    variable, name = location.owner, location.key
    _require_plain(variable, name, sides)
    merger, is_deleted = join.merger, [isinstance(side, compat.DeletedVariable) for side in sides]
    if all(is_deleted):
        return OneValue(location, lambda merged: sides[0], (sides[0], sides[0]))
    is_lazy = any(isinstance(side, LazyPhi) for side in sides)
    if may_merge and not any(is_deleted) and not is_lazy:
        if may_outlive_its_graph(sides):
            apart = merger.attempt(lambda: _stored_apart(join, location, sides, inherited))
            if not isinstance(apart, Refusal):
                return apart
            require_no_earlier_history(sides, f"the attribute {name}")
        merged = merger.attempt(lambda: merger.merge(*sides))
        if not isinstance(merged, Refusal):
            return OneValue(location, merged, sides)
        number = _carried_number(join, location, sides)
        if number is not None:
            return number
    return _stored_apart(join, location, sides, inherited)


def _carried_number(
    join: Join, location: Location, sides: tuple[Value, Value]
) -> LocationPhi | None:
    """Plan one number for an attribute that the operator of a loop is to carry; else ``None``."""
    is_in_a_turn = bool(nesting_limits.ITERATIONS.of(join.tx.output))
    return one_number(join, location, sides) if is_in_a_turn else None


def _stored_apart(
    join: Join, location: Location, sides: tuple[Value, Value], inherited: int
) -> LocationPhi:
    """Plan to store what the side taken leaves when the graph has run. Raises ``Refusal``."""
    variable, name, merger = location.owner, location.key, join.merger
    is_deleted = [isinstance(side, compat.DeletedVariable) for side in sides]
    if not join.site.holds(Claim.READ_APART, join.form):
        number = one_number(join, location, sides)
        if number is not None:
            return number
        raise Refusal("arms-differ", f"the attribute {name} has no common form, and is read later")
    is_of_frame = _is_local_cell(variable) and join.site.holds(Claim.LOCAL, join.form)
    if not is_of_frame:  # else it dies with the frame, or is asked for
        _require_storable(join, variable, name)
    # While the call is captured whole, all that looks for it is traced, and asks _load_attribute.
    is_owned = frames.ends_at_a_boundary(join.tx) and _is_object(variable)
    if any(is_deleted) and not (is_owned or is_of_frame):
        require_creatable(join, variable, name, may_be_stored=True)
    for side in sides:
        if isinstance(side, LazyPhi):
            side.require_both_sides(join.site)
    plans = [
        (lambda merged: MissingAttribute()) if deleted else merger.adopt(side, then_side=taken)
        for taken, side, deleted in zip((True, False), sides, is_deleted, strict=True)
    ]
    if is_of_frame:
        return BothSides(location, tuple(plans), CellPhi)
    is_typed = name in _entries(variable, "_buffers")
    phi = functools.partial(StoredPhi, location=location, is_typed=is_typed, inherited=inherited)
    return BothSides(location, tuple(plans), phi)


def stored_attribute(tx: compat.Tracer, location: Location) -> Value | None:
    """Return an attribute that is stored to again and again; ``None`` where it is missing.

    So it is where the object has it by its class alone. Raises ``Refusal`` if a store does more.
    """
    variable, name = location.owner, location.key
    if isinstance(variable, compat.TensorVariable):
        raise Refusal("arm-gradient" if name == "grad" else "arms-differ", f"Tensor.{name}")
    present = _present_attribute(tx, variable, name)
    if present is None or isinstance(present, compat.DeletedVariable):
        return None
    _require_plain(variable, name, (present, present))
    return None if _is_inherited(tx, variable, name) else present


def _require_plain(variable: Value, name: str, sides: tuple[Value, Value]) -> None:
    """Raise ``Refusal`` if a store of merged values to an attribute does more than that."""
    _require_of_the_program(variable, name)
    _require_no_setting(variable, name)
    _require_no_method(variable, name, sides)


def _require_of_the_program(variable: Value, name: str) -> None:
    """Raise ``Refusal`` if a store to a module or class of torch sets something there."""
    owner = getattr(variable, "value", None)
    where = owner.__name__ if isinstance(owner, ModuleType) else ""
    if isinstance(owner, type):
        where = owner.__module__
        if type(owner).__setattr__ is not type.__setattr__:
            raise Refusal("arm-effects", f"a store to {name} of a class, which its metaclass sees")
    if where.partition(".")[0] == "torch":
        raise Refusal("arm-setting", f"{where}.{name}")


def _require_no_setting(variable: Value, name: str) -> None:
    """Raise ``Refusal`` if a container gets what a field of its model holds: none is merged."""
    if isinstance(variable, compat.DefaultDictVariable) and name in containers.SETTINGS:
        raise Refusal("arm-effects", f"{name} of a {variable.python_type_name()}")


def _require_no_method(variable: Value, name: str, sides: tuple[Value, Value]) -> None:
    """Raise ``Refusal`` if a class gets or loses what its objects bind.

    Dynamo looks for that in the class itself, and not among what is stored.
    """
    owner = getattr(variable, "value", None)
    if not isinstance(owner, type):
        return
    kinds = [type(inspect.getattr_static(owner, name, None))]
    # A phi was asked about when its sides were stored.
    known = (one for one in sides if not isinstance(one, (compat.DeletedVariable, Phi)))
    kinds += [one.python_type() for one in known]
    if any(hasattr(kind, "__get__") for kind in kinds):
        raise Refusal("arm-effects", f"{name} of a class, which its objects bind")


def _require_storable(join: Join, variable: Value, name: str) -> None:
    """Raise ``Refusal`` unless both sides can be stored in a place until the graph has run."""
    if isinstance(variable, compat.TensorVariable):
        raise Refusal("arm-gradient" if name == "grad" else "arms-differ", f"Tensor.{name}")
    if not record_builder.is_open(join.tx):
        raise Refusal("arms-differ", f"the attribute {name} has no common form, outside a boundary")
    if name in _entries(variable, "_parameters") or name in _entries(variable, "_modules"):
        raise Refusal("arms-differ", f"the parameter or submodule {name} has no common form")


def _is_local_cell(variable: Value) -> bool:
    return isinstance(variable, compat.CellVariable) and variable.source is None


def _is_outer(variable: Value) -> bool:
    """Return whether ``variable`` is a variable of a scope from before the call."""
    is_cell = isinstance(variable, compat.CellVariable) and variable.source is not None
    return is_cell or isinstance(variable, compat.NewGlobalVariable)


def _entries(variable: Value, table: str) -> Any:
    """Return a table of the module that ``variable`` stands for; empty for another object."""
    owner = getattr(variable, "value", None)
    return getattr(owner, table) if isinstance(owner, torch.nn.Module) else ()


def _is_inherited(tx: compat.Tracer, variable: Value, name: str) -> bool:
    """Return whether an object from before the call has an attribute only by its class.

    A variable of an outer scope that is not bound is like that: a side that does not store to it
    leaves it as it is.
    """
    if _is_outer(variable):
        present = _present_attribute(tx, variable, name)
        return present is None or isinstance(present, compat.DeletedVariable)
    owner = getattr(variable, "value", None)
    if variable.source is None or not isinstance(variable, _OWNERS):
        return False
    is_pending = tx.output.side_effects.has_pending_mutation_of_attr(variable, name)
    return not is_pending and records.is_inherited(owner, name)


_OWNERS: Final = (compat.UserDefinedObjectVariable, compat.UserDefinedClassVariable)


def _present_attribute(tx: compat.Tracer, variable: Value, name: str) -> Value | None:
    effects = tx.output.side_effects
    if effects.has_pending_mutation_of_attr(variable, name):
        return effects.store_attr_mutations[variable][name]
    if name == "cell_contents":
        return objects.contents_before(variable)
    if isinstance(variable, compat.NewGlobalVariable):
        return None  # one that is there has a pending value
    if _is_computed(tx, variable, name):
        return None
    _require_guarded(variable, name)
    _require_no_question(variable, name)
    try:
        return objects.attribute_of(tx, variable, name)
    except compat.observed_exception_map[AttributeError]:
        compat.handle_observed_exception(tx)
        return None
    except (compat.Unsupported, NotImplementedError) as error:
        raise Refusal("arms-differ", f"the attribute {name} cannot be read: {error}") from None


def _is_computed(tx: compat.Tracer, variable: Value, name: str) -> bool:
    """Return whether reading an attribute would run code of its class, as of a cached property.

    An object that has none of its own yet is left without one by a side that stores nothing.
    """
    if not _is_inherited(tx, variable, name) or _is_outer(variable):
        return False
    kinds = map(namespace, ancestors(type(object_behind(variable))))
    found = next((each[name] for each in kinds if name in each), None)
    return any("__get__" in namespace(each) for each in ancestors(type(found))) and not isinstance(
        found, _BINDING
    )


#: What binds a function, or gives it, without running it.
_BINDING: Final = (FunctionType, classmethod, staticmethod)


def _require_guarded(variable: Value, name: str) -> None:
    """Raise ``Refusal`` for an attribute of a dictionary from before the call.

    Guards of torch look at attributes of dictionaries only when the items have changed.
    """
    if variable.source is not None and isinstance(object_behind(variable), dict):
        raise Refusal("arms-differ", f"the attribute {name} of a dictionary, which no guard sees")


def _require_no_question(variable: Value, name: str, *, is_guarded: bool = False) -> None:
    """Raise ``Refusal`` if code of the program would be asked for an attribute that is stored.

    Eager execution does not ask; nor may a guard, for which the attribute can be missing by then.
    """
    owner = getattr(variable, "value", None)
    if not isinstance(variable, compat.UserDefinedObjectVariable):
        return
    kinds = ancestors(type(owner))
    asked = [name for name in ("__getattribute__", "__getattr__") if is_of_program(kinds, name)]
    is_there = name in dictionary(owner) or any(name in namespace(kind) for kind in kinds)
    if "__getattribute__" in asked or (asked and (is_guarded or not is_there)):
        raise Refusal("arms-differ", f"{asked[0]} would be asked for the attribute {name}")


def is_of_program(kinds: Sequence[type], name: str) -> bool:
    """Return whether a method that classes have first is written in Python, and not torch's."""
    found = next((namespace(kind)[name] for kind in kinds if name in namespace(kind)), None)
    return isinstance(found, FunctionType) and found is not torch.nn.Module.__getattr__


def _guard_presence(variable: Value, name: str) -> None:
    """Have the frame traced anew for an object that has the attribute, or lacks it, by then."""
    if variable.source is not None and not _is_outer(variable):
        _require_no_question(variable, name, is_guarded=True)
        present = functools.partial(compat.GuardBuilder.HASATTR, attr=name)
        compat.install_guard(variable.source.make_guard(present))


def require_creatable(
    join: Join, variable: Value, name: str, *, may_be_stored: bool = False
) -> None:
    """Raise ``Refusal`` unless nobody can miss the attribute before the end of the call."""
    # Where ``may_be_stored``, a store elsewhere does no harm.
    if name == "cell_contents" or not _is_object(variable):
        raise Refusal("arms-differ", f"{name} is bound on one side only")
    if not record_builder.is_open(join.tx):
        raise Refusal(
            "arms-differ", f"the attribute {name} is created on one side only, outside a boundary"
        )
    assert join.site.plan is not None
    origin, inside = join.site.origin, join.site.plan.inside[join.form]
    is_mentioned_outside = any(
        each.argval == name
        and not (may_be_stored and operation(each) in ATTRIBUTE_STORES)
        and not any(first <= each.offset <= last for first, last in inside)
        for each in dis.get_instructions(origin)
    )
    if is_mentioned_outside or SESSION.patcher.is_named_elsewhere(name, origin):
        raise Refusal(
            "arms-differ", f"the attribute {name}, created on one side only, is used elsewhere"
        )


def _is_object(variable: Value) -> bool:
    """Return whether a record can name the owner of an attribute."""
    is_new = isinstance(variable.mutation_type, compat.AttributeMutationNew)
    return variable.source is not None or (is_new and not isinstance(variable, compat.CellVariable))


_PURPOSE: Final = "attributes that only one side of a branch has"


@hooks.around(compat.SideEffects, methods.LOAD_ATTRIBUTE, _PURPOSE, gate=None)
def _load_attribute(
    inner: Any, self: compat.SideEffects, item: Value, name: str, *flags: Any, **named_flags: Any
) -> Value:
    """Read an attribute that was stored to, or look whether it is there."""
    found: Value = inner(self, item, name, *flags, **named_flags)
    if isinstance(found, (CellPhi, StoredPhi)):
        found.require_present()
    return found


@handlers.method(compat.SuperVariable, methods.CALL_METHOD, _PURPOSE)
def _call_of_super(call: Call) -> Answer:
    """Answer ``super().__delattr__(name)``; Dynamo finds at the end only that there is none."""
    name, args, _ = call.args
    owner = objects.object_of_super(call.owner)
    if name == "__delattr__" and owner is not None and nesting_limits.is_in_an_arm(call.tx):
        deleted = args[0].as_python_constant()
        if _lacks(call.tx, owner.realize(), deleted):
            compat.raise_observed_exception(AttributeError, call.tx, args=[deleted])
    return PASS


def _lacks(tx: compat.Tracer, owner: Value, name: str) -> bool:
    """Return whether an object has no attribute of its own that is called ``name``."""
    effects = tx.output.side_effects
    if effects.has_pending_mutation_of_attr(owner, name):
        return isinstance(effects.store_attr_mutations[owner][name], compat.DeletedVariable)
    held = object_behind(owner)
    return isinstance(held, torch.nn.Module) and name not in vars(held)

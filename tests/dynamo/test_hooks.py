"""The registry of hooks: it has no order, gates each call, and leaves torch as it was."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import random
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

import bcmend
from bcmend import meta_keys
from bcmend.doctor import listing
from bcmend.dynamo import compat, frames, handlers, hooks, operators, trace_state
from bcmend.patching import (
    installer,
    retrace,  # noqa: F401  declares every hook
)
from bcmend.patching.table import TABLE
from tests import new_process
from tests.differences_of_torch import FORMATTED_FLOATS_FAIL
from tests.dynamo import torch_state

REGISTRY = hooks.REGISTRY

# What waits is another matter: tests/patching/test_waiting.py.
pytestmark = pytest.mark.usefixtures("mended_ahead")
AHEAD = bcmend.Policy(mend="ahead")


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    bcmend.unpatch()
    torch._dynamo.reset()


# Free of order


def _closure(function: FunctionType) -> dict[str, Any]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {name: cell.cell_contents for name, cell in cells}


def _chain(function: Any) -> list[Any]:
    """Return the hooks in front of a function of torch, the first one first, then the function."""
    found: list[Any] = []
    if isinstance(function, property):
        function = function.fget
    elif isinstance(function, staticmethod):
        function = function.__func__
    while hasattr(function, meta_keys.INNER):
        found.append(_closure(function)["function"])
        function = getattr(function, meta_keys.INNER)
    return [*found, function]


def _row_functions(handler: Any) -> tuple[Any, Any]:
    held = _closure(handler)
    return held["function"], held["before"]


def _installed() -> dict[str, Any]:
    """Install everything; return the chain of each target, and the function of each row."""
    REGISTRY.install()
    try:
        found: dict[str, Any] = {
            hook.target: _chain(vars(hook.owner)[hook.name])
            for hook in REGISTRY.hooks
            if not hook.is_of_trace
        }
        table = operators.table(operators.FUNCTIONS)
        for row in REGISTRY.rows:
            if row.table == hooks.FUNCTIONS:
                found[f"{row.target} {id(row.key)}"] = _row_functions(table[row.key])
        for kind in hooks._PER_TRACE:
            made = REGISTRY.subclass_of(kind)
            for hook in REGISTRY.hooks:
                if hook.owner is kind:
                    found[hook.target] = _chain(vars(made)[hook.name])
        return found
    finally:
        REGISTRY.uninstall()


def _shuffle(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Declare everything anew in another order."""
    generator = random.Random(seed)

    def shuffled(values: list[Any]) -> list[Any]:
        return generator.sample(values, len(values))

    monkeypatch.setattr(REGISTRY, "hooks", shuffled(REGISTRY.hooks))
    monkeypatch.setattr(REGISTRY, "rows", shuffled(REGISTRY.rows))
    monkeypatch.setattr(REGISTRY, "subclasses", {})
    monkeypatch.setattr(REGISTRY, "caches", {})
    monkeypatch.setattr(trace_state, "_WHEN_LATE", shuffled(trace_state._WHEN_LATE))
    declared = [
        (name, place, handler)
        for name, rows in handlers.TENSOR_METHODS.items()
        for place, handler in rows
    ]
    monkeypatch.setattr(handlers, "TENSOR_METHODS", {})
    for name, place, handler in shuffled(declared):
        handlers.tensor_method(name, place=place)(handler)


def test_hooks_of_one_target_have_places_of_their_own() -> None:
    places = defaultdict(list)
    for hook in REGISTRY.hooks:
        places[id(hook.owner), hook.name].append(hook.place)
    assert any(len(each) > 1 for each in places.values())
    for each in places.values():
        assert sorted(each) == list(range(len(each)))


def test_no_hooked_method_is_inherited_from_a_hooked_one() -> None:
    """Else the chain of the heir would depend on which one is replaced first."""
    targets = {(hook.owner, hook.name) for hook in REGISTRY.hooks}
    for owner, name in targets:
        if isinstance(owner, type) and name not in vars(owner):
            assert not [
                base for base in owner.__mro__[1:] if (base, name) in targets and name in vars(base)
            ]


def test_each_row_of_a_table_is_declared_once() -> None:
    keys = [(row.table, row.key) for row in REGISTRY.rows]
    assert len(set(keys)) == len(keys)


def test_handlers_of_one_method_of_tensors_have_places_of_their_own() -> None:
    for rows in handlers.TENSOR_METHODS.values():
        assert len({place for place, _ in rows}) == len(rows)


@pytest.mark.parametrize("seed", range(5))
def test_the_chain_of_each_target_does_not_depend_on_the_order(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(REGISTRY, "subclasses", {})
    before = _installed()
    order = [id(each) for each in (*REGISTRY.hooks, *REGISTRY.rows)]
    tensor_methods = dict(handlers.TENSOR_METHODS)
    _shuffle(seed, monkeypatch)
    assert [id(each) for each in (*REGISTRY.hooks, *REGISTRY.rows)] != order
    assert _installed() == before
    assert handlers.TENSOR_METHODS == tensor_methods


def _branch(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    if x.sum() > 0:
        print("above", x.max())
        y = y + 1
    else:
        y = y - x.mean()
    return y.relu() if any(x > 2) else y


def _loop(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    for each in (x > 0).nonzero().flatten().tolist():
        y = y + x[each]
    return y


def _shown(number: float) -> str:
    return f"{number}" if FORMATTED_FLOATS_FAIL else f"{number:.1f}"


def _numbers(x: torch.Tensor) -> torch.Tensor:
    first = x[0].item()
    if x.argmax().item() > 0 and torch.equal(x, x + first):
        x = x + x[x.argmax().item()]
    print(_shown(first))
    return x


PROGRAMS = (_branch, _loop, _numbers)


def _run(programs: Iterable[Callable[..., Any]]) -> list[Any]:
    found: list[Any] = []
    for program in programs:
        for values in ([1.0, 2, 3], [-1.0, -2, -3], [0.0, -1, 4]):
            with contextlib.redirect_stdout(io.StringIO()) as written:
                found += [program(torch.tensor(values)).tolist(), written.getvalue()]
    return found


def _compiled() -> tuple[list[Any], list[str]]:
    """Return what the programs give when they are patched and compiled, and their graphs."""
    graphs: list[str] = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(graph.print_readable(print_output=False))
        return graph.forward

    torch._dynamo.reset()
    with contextlib.ExitStack() as stack:
        for program in PROGRAMS:
            stack.enter_context(bcmend.patched(program))
        found = _run(torch.compile(program, backend=backend) for program in PROGRAMS)
    return found, graphs


def test_a_compiled_program_does_not_depend_on_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = _run(PROGRAMS)
    found, graphs = _compiled()
    assert found == expected and len(graphs) == len(PROGRAMS)
    for seed in range(3):
        with monkeypatch.context() as patch:
            _shuffle(seed, patch)
            assert _compiled() == (found, graphs)


# As it was


def leave_a_trace() -> None:
    """Patch, compile, unpatch; print what is other than before. Runs in a process of its own."""
    _run(torch.compile(each, backend="eager") for each in PROGRAMS)  # imports all that it does
    torch._dynamo.reset()
    before, names = torch_state.state(), set(globals())
    for program in PROGRAMS:
        bcmend.patch(program, policy=AHEAD)
    armed = torch_state.state()
    _run(torch.compile(each, backend="eager") for each in PROGRAMS)
    traced = torch_state.state()
    with hooks.active():
        active = torch_state.state()
    patched_names = set(globals())
    bcmend.unpatch()
    torch._dynamo.reset()
    gc.collect()
    states = {
        "armed": torch_state.changed(before, armed),
        "traced": torch_state.changed(armed, traced),
        "active": torch_state.changed(armed, active),
        "at the end": torch_state.changed(before, torch_state.state()),
    }
    found = {name: ["{}: {}".format(*key) for key in keys] for name, keys in states.items()}
    found["patched names"] = sorted(patched_names - names)
    found["names"] = sorted(set(globals()) - names)
    print("\n" + json.dumps(found))


@pytest.fixture(scope="module")
def trace() -> dict[str, list[str]]:
    code = "from tests.dynamo import test_hooks; test_hooks.leave_a_trace()"
    done = new_process.run("-c", code)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_every_hook_is_seen_while_it_is_in_place(trace: dict[str, list[str]]) -> None:
    """The comparison of states would find one that is left behind."""
    seen = {each.rpartition(".")[2].replace(": ", ".") for each in trace["active"]}
    hooked = {hook.target for hook in REGISTRY.hooks if not hook.is_of_trace}
    assert hooked <= seen
    assert sum(each.startswith("handlers") for each in trace["active"]) == sum(
        row.table == hooks.FUNCTIONS for row in REGISTRY.rows
    )
    assert sum(each.startswith("operators") for each in trace["armed"]) == sum(
        row.table == hooks.OPERATORS for row in REGISTRY.rows
    )
    assert any(each.startswith("SKIP_DIRS") for each in trace["armed"])


def test_between_traces_only_tables_are_other_than_before(trace: dict[str, list[str]]) -> None:
    tables = ("operators", "SKIP_DIRS")
    assert [each for each in trace["armed"] if not each.startswith(tables)] == []
    assert trace["traced"] == []


def test_after_the_last_unpatching_torch_is_as_it_was(trace: dict[str, list[str]]) -> None:
    assert trace["at the end"] == []


def test_only_names_that_no_program_spells_are_left_beside_a_patched_function(
    trace: dict[str, list[str]],
) -> None:
    """And Dynamo's own: of builtins, and of modules that compiled code has imported."""
    assert "@bcmend" in trace["patched names"]
    own = ("__builtins_dict__", "__import_")
    left = {each for each in trace["names"] if not each.startswith(own)}
    assert left == set(installer._GLOBALS)


def test_directories_that_others_have_dynamo_skip_stay() -> None:
    directories = compat.trace_rules.SKIP_DIRS
    before = list(directories)
    bcmend.patch(_branch)
    compat.trace_rules.add("json")
    added = directories[-1]
    try:
        bcmend.unpatch()
        assert directories == [*before, added]
        assert compat.trace_rules.SKIP_DIRS_RE.match(added)
    finally:
        directories[:] = before
        compat.trace_rules._recompile_re()


# The parts of it


class _Base:
    def read(self) -> str:
        return "read"


class _Owner(_Base):
    def write(self, value: str) -> str:
        return f"write {value}"

    @property
    def size(self) -> int:
        return 3


def _hook(name: str, mark: str, place: int = 0, gate: Any = None) -> hooks.Hook:
    def function(inner: Callable[..., Any], *arguments: Any) -> Any:
        return mark, inner(*arguments)

    return hooks.Hook(_Owner, name, "a test", function, gate, place)


def test_hooks_of_a_target_are_called_from_the_highest_place_down() -> None:
    registry = hooks.Registry([_hook("write", "low"), _hook("write", "high", 1)])
    original = vars(_Owner)["write"]
    registry.install()
    try:
        assert _Owner().write("x") == ("high", ("low", "write x"))
        assert hooks.original(_Owner.write) is original
    finally:
        registry.uninstall()
    assert vars(_Owner)["write"] is original


MISSING = [_hook("move", "hooked"), _hook("erase", "hooked")]


def test_all_that_is_missing_is_named_before_anything_is_replaced() -> None:
    original = vars(_Owner)["write"]
    registry = hooks.Registry([_hook("write", "hooked"), *MISSING])
    assert registry.missing() == ["_Owner.erase", "_Owner.move"]
    with pytest.raises(bcmend.MissingInTorch, match=r": _Owner\.erase, _Owner\.move$"):
        registry.install()
    assert vars(_Owner)["write"] is original and not registry.before


def test_a_builtin_is_found_for_a_module_alone() -> None:
    def is_missing(owner: Any, name: str) -> bool:
        return hooks.Hook(owner, name, "a test", print, None).is_missing

    assert not is_missing(json, "isinstance") and is_missing(json, "is_instance")
    assert is_missing(_Owner, "isinstance")


def test_an_error_half_way_leaves_nothing_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {"known": "before"}
    monkeypatch.setattr(hooks, "table", lambda name: table)
    original, cache = vars(_Owner)["write"], vars(compat.BuiltinVariable)["_binop_handlers"]
    faults = [KeyError("a fault")]

    def make(before: Any) -> Any:
        if faults:
            raise faults.pop()
        return "made", before

    registry = hooks.Registry(
        [_hook("write", "hooked"), _hook("read", "hooked")],
        [
            hooks.TableEntry(hooks.FUNCTIONS, "known", "a test", lambda before: ("made", before)),
            hooks.TableEntry(hooks.FUNCTIONS, "new", "a test", make),
        ],
    )
    with pytest.raises(KeyError, match="a fault"):
        registry.install()
    assert vars(_Owner)["write"] is original and "read" not in vars(_Owner)
    assert table == {"known": "before"} and not registry.before
    assert vars(compat.BuiltinVariable)["_binop_handlers"] is cache
    registry.install()
    try:
        assert _Owner().write("x") == ("hooked", "write x")  # once, not twice
        assert table == {"known": ("made", "before"), "new": ("made", None)}
    finally:
        registry.uninstall()
    assert vars(_Owner)["write"] is original and table == {"known": "before"}


def test_a_trace_that_cannot_begin_leaves_the_hooks_out(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = next(each for each in REGISTRY.hooks if not each.is_of_trace)
    before = vars(hook.owner).get(hook.name)
    with monkeypatch.context() as patch:
        patch.setattr(REGISTRY, "hooks", [*REGISTRY.hooks, *MISSING])
        with pytest.raises(bcmend.MissingInTorch), hooks.active():
            pass
    assert not hooks.is_active() and vars(hook.owner).get(hook.name) is before
    with hooks.active():
        assert hooks.is_active()
    assert vars(hook.owner).get(hook.name) is before


def test_nothing_is_patched_where_something_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    directories, code = list(compat.trace_rules.SKIP_DIRS), _branch.__code__
    names = set(globals())
    with monkeypatch.context() as patch:
        patch.setattr(REGISTRY, "hooks", [*REGISTRY.hooks, *MISSING])
        with pytest.raises(bcmend.MissingInTorch, match=r"_Owner\.erase, _Owner\.move"):
            bcmend.patch(_branch)
    assert _branch.__code__ is code and set(globals()) == names
    assert not REGISTRY.armed and directories == compat.trace_rules.SKIP_DIRS
    assert not TABLE.functions and not TABLE.reached
    with bcmend.patched(_branch):
        assert _branch.__code__ is not code


def test_doctor_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not [line for line in listing.lines() if "missing" in line]
    monkeypatch.setattr(REGISTRY, "hooks", [*REGISTRY.hooks, *MISSING])
    missing = [line for line in listing.lines() if "missing" in line]
    assert missing == [f"missing in this torch: _Owner.{name}" for name in ("erase", "move")]


def test_arming_that_fails_half_way_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise KeyError(name)

    rows = [each for each in REGISTRY.rows if each.table == hooks.OPERATORS]
    table = operators.table(operators.OPERATORS)
    with monkeypatch.context() as patch:
        patch.setattr(compat.trace_rules, "add", fail)
        with pytest.raises(KeyError, match="bcmend"):
            hooks.arm()
    assert rows and not REGISTRY.armed and not any(each.key in table for each in rows)


def test_an_inherited_method_is_replaced_in_the_heir_alone() -> None:
    registry = hooks.Registry([_hook("read", "hooked")])
    registry.install()
    try:
        assert _Owner().read() == ("hooked", "read")
        assert _Base().read() == "read"
    finally:
        registry.uninstall()
    assert "read" not in vars(_Owner) and _Owner().read() == "read"


def test_a_property_stays_a_property() -> None:
    registry = hooks.Registry([_hook("size", "hooked")])
    registry.install()
    try:
        assert _Owner().size == ("hooked", 3)
    finally:
        registry.uninstall()
    assert _Owner().size == 3


@pytest.mark.parametrize("covered", [True, False])
def test_a_gate_chooses_the_frames_of_patched_code(
    covered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tx = SimpleNamespace()
    monkeypatch.setattr(frames, "covers", lambda frame: frame is tx and covered)
    hooked = _hook("write", "hooked", gate=hooks.second).around(lambda owner, tx: "inner")
    assert hooked(_Owner(), tx) == (("hooked", "inner") if covered else "inner")


def test_gates_find_the_translator() -> None:
    tx = SimpleNamespace()
    assert hooks.first(tx, 1) is tx
    assert hooks.second(1, tx) is tx
    assert hooks.of_builder(SimpleNamespace(tx=tx), 1) is tx


def test_hooks_are_in_place_until_the_outermost_block_ends() -> None:
    hook = next(each for each in REGISTRY.hooks if not each.is_of_trace)
    before = vars(hook.owner).get(hook.name)
    with pytest.raises(KeyError), hooks.active():
        with hooks.active():
            pass
        assert hooks.is_active() and vars(hook.owner)[hook.name] is not before
        raise KeyError
    assert not hooks.is_active() and vars(hook.owner).get(hook.name) is before


def test_hooks_end_with_the_trace_that_they_were_activated_for() -> None:
    endings: list[Callable[[], None]] = []
    hooks.activate_for(SimpleNamespace(add_cleanup_hook=endings.append))  # type: ignore[arg-type]
    assert hooks.is_active()
    (end,) = endings
    end()
    assert not hooks.is_active()


def test_arming_twice_is_arming_once() -> None:
    directories = list(compat.trace_rules.SKIP_DIRS)
    hooks.arm()
    hooks.arm()
    assert len(compat.trace_rules.SKIP_DIRS) == len(directories) + 1
    hooks.disarm()
    hooks.disarm()
    assert directories == compat.trace_rules.SKIP_DIRS


def test_only_objects_of_the_very_classes_of_a_trace_are_adopted() -> None:
    class Heir(compat.ShapeEnv):
        pass

    plain, heir = compat.ShapeEnv(), Heir()
    hooks.adopt((plain, heir, 3))
    assert type(plain) is REGISTRY.subclass_of(compat.ShapeEnv) is not compat.ShapeEnv
    assert type(heir) is Heir
    hooks.adopt((plain,))
    assert type(plain).__base__ is compat.ShapeEnv


def test_a_row_is_put_in_front_of_the_present_one_and_taken_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    present = {"known": "before"}
    monkeypatch.setattr(hooks, "table", lambda name: present)
    rows = [
        hooks.TableEntry(hooks.FUNCTIONS, key, "a test", lambda before: ("made", before))
        for key in ("known", "new")
    ]
    endings = [hooks._put_row(row) for row in rows]
    assert present == {"known": ("made", "before"), "new": ("made", None)}
    for end in endings:
        end()
    assert present == {"known": "before"}


def _held(owner: Any) -> Iterator[Any]:
    """Yield what may hold a function beside its owner, a class or a module.

    Of a class it is in tables of it and its bases, of a module in other modules of Dynamo's.
    """
    if isinstance(owner, ModuleType):
        others = [each for name, each in sys.modules.items() if name.startswith("torch._dynamo.")]
        yield from (each for other in others if other is not owner for each in vars(other).values())
        return
    for kind in owner.__mro__:
        tables = (each for each in vars(kind).values() if isinstance(each, dict))
        for entry in (each for table in tables for each in table.values()):
            yield entry
            yield from (getattr(entry, name, None) for name in _fields(entry))


def _fields(entry: Any) -> list[str]:
    return [*getattr(type(entry), "__slots__", ()), *getattr(entry, "__dict__", ())]


def test_nothing_of_torch_holds_a_function_past_its_hooks() -> None:
    """Dynamo would call what a table or another module holds, and no hook."""
    declared = [each for each in REGISTRY.hooks if not each.is_of_trace] + REGISTRY.watches
    owners = {each.owner for each in declared}
    torch_own = {
        id(found): each.target
        for each in declared
        for found in [hooks.original(getattr(each.owner, each.name, None))]
        if isinstance(found, FunctionType)
    }

    def held_past_hooks() -> set[str]:
        held = (id(each) for owner in owners for each in _held(owner))
        return {torch_own[each] for each in held if each in torch_own}

    REGISTRY.watch(is_wanted=True)
    try:
        with hooks.active():
            passed = held_past_hooks()
        watched = {each.target for each in REGISTRY.watches}
        past = held_past_hooks()
    finally:
        REGISTRY.watch(is_wanted=False)
    assert passed - watched == set() and past & watched == set()

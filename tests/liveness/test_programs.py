"""On this torch every hook is called, and every program is equal to eager execution."""

from __future__ import annotations

from collections import Counter

from bcmend.dynamo import handlers, hooks
from bcmend.liveness import loading, runner
from bcmend.patching import torch_check

torch_check.declare_hooks()
PROGRAMS = loading.programs()


def _declared() -> set[tuple[str, str]]:
    """Return the targets of all that torch has to call, with their purposes."""
    registry = hooks.REGISTRY
    found = {(each.target, each.purpose) for each in (*registry.hooks, *registry.watches)}
    found |= {(each.target, each.purpose) for each in registry.rows}
    return found.union((f"Tensor.{name}", "") for name in handlers.TENSOR_METHODS)


def test_each_program_has_a_name_of_its_own() -> None:
    assert [
        name for name, count in Counter(each.name for each in PROGRAMS).items() if count > 1
    ] == []


def test_what_programs_prove_is_declared() -> None:
    declared = _declared()
    names = {name for each in declared for name in each}
    proved = {each for program in PROGRAMS for each in program.proves}
    assert [each for each in proved if not names & {each, each.partition(":")[0]}] == []


def test_every_hook_is_claimed_by_a_program() -> None:
    """Whoever declares a hook adds a program to ``bcmend/liveness/programs``, or a claim to one."""
    assert [
        each for each in _declared() if not any(program.claims(*each) for program in PROGRAMS)
    ] == []


def test_every_hook_is_called_and_every_program_is_equal_to_eager_execution() -> None:
    """In one test: a run takes twenty seconds, and tests of a module may run in many processes."""
    found = runner.run(PROGRAMS)
    wrong = {each.program.name: (each.difference, each.not_called) for each in found.ran}
    assert {name: what for name, what in wrong.items() if any(what)} == {}
    assert [(each.target, each.purpose) for each in found.seen if not each.programs] == []
    assert found.is_right and {each.program for each in found.ran} == set(PROGRAMS)

"""The names of sites, and which instructions each covers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from bcmend.analysis.facts import Facts, facts_of
from bcmend.bytecode.decode import decode
from bcmend.bytecode.instructions import Instruction, Location
from bcmend.cfg.dominance import EXIT
from bcmend.names import SPLIT
from bcmend.policy import DEFAULT, Policy
from bcmend.rewrite.decisions import Decision
from bcmend.rewrite.mended import Context
from bcmend.rewrite.named_sites import named_plan
from bcmend.rewrite.sites.branch import propose_branch
from bcmend.rewrite.sites.plan import BranchLowering, Plan, SiteRefusal
from tests.listing import listing

REFUSAL = SiteRefusal("output-shape")


def _function(x: Any) -> Any:
    return print(x), print(x)


def _plan(
    function: FunctionType,
    decisions: list[Decision],
    policy: Policy = DEFAULT,
    names: Counter[str] | None = None,
    key_for: Callable[[str, CodeType], str] = lambda name, code: name,
) -> Plan:
    facts = facts_of(decode(function.__code__))
    context = Context("module", {}, policy, key_for=key_for)
    return named_plan(function.__code__, facts, decisions, context, names or Counter())


FIRST_LINE = _function.__code__.co_firstlineno
LINE = FIRST_LINE + 1
FACTS = facts_of(decode(_function.__code__))
CALLS = [index for index, each in enumerate(FACTS.instructions) if each.op == "CALL"]


def test_a_name_has_module_function_line_and_kind() -> None:
    (site,) = _plan(_function, [(CALLS[0], "output", REFUSAL)]).sites
    assert site.name == f"module._function:{LINE}:output"
    assert (site.kind, site.index, site.line) == ("output", CALLS[0], LINE)
    assert site.offset == FACTS.instructions[CALLS[0]].offset
    assert site.decision is REFUSAL and site.inside == () and site.place is None


def test_names_are_made_keys() -> None:
    decisions: list[Decision] = [(call, "output", REFUSAL) for call in CALLS]
    asked = []

    def key_for(name: str, code: CodeType) -> str:
        asked.append(code)
        return f"{name}@2"

    plan = _plan(_function, decisions, key_for=key_for)
    start = f"module._function:{LINE}:output"
    assert [site.name for site in plan.sites] == [f"{start}@2", f"{start}#2@2"]
    assert {id(code) for code in asked} == {id(_function.__code__)}


def test_a_site_with_a_marked_name_is_switched_off_by_the_name_of_its_place() -> None:
    name = f"module._function:{LINE}:output"
    plan = _plan(
        _function,
        [(CALLS[0], "output", REFUSAL)],
        Policy(off=(name,)),
        key_for=lambda found, code: f"{found}@2",
    )
    assert [(site.name, site.decision) for site in plan.sites] == [
        (f"{name}@2", SiteRefusal("switched-off"))
    ]


def test_equal_names_are_numbered() -> None:
    decisions: list[Decision] = [(call, "output", REFUSAL) for call in CALLS]
    decisions.append((CALLS[1] + 1, "branch", REFUSAL))
    names = [site.name for site in _plan(_function, decisions).sites]
    start = f"module._function:{LINE}"
    assert names == [f"{start}:output", f"{start}:output#2", f"{start}:branch"]


def test_names_are_counted_over_several_functions() -> None:
    names = Counter({f"module._function:{LINE}:output": 2})
    (site,) = _plan(_function, [(CALLS[0], "output", REFUSAL)], names=names).sites
    assert site.name.endswith("#3")


def test_a_site_that_is_switched_off_is_refused() -> None:
    policy = Policy(off=("module._function:*:output#2",))
    decisions: list[Decision] = [(call, "output", REFUSAL) for call in CALLS]
    one, other = _plan(_function, decisions, policy).sites
    assert one.decision is REFUSAL and other.decision == SiteRefusal("switched-off")


def test_an_instruction_without_a_location_has_no_line() -> None:
    made = listing("NOP\nRETURN_CONST 1")
    context = Context("module", {}, DEFAULT)
    decisions: list[Decision] = [(0, "branch", REFUSAL)]
    plan = named_plan(_function.__code__, facts_of(made.function), decisions, context, Counter())
    assert plan.sites[0].line is None and plan.sites[0].name == "module._function:None:branch"


def _with_offsets(text: str, arguments: tuple[str, ...]) -> Facts:
    """Return facts about a listing in which instruction ``i`` has the offset ``10 * i``."""
    made = listing(text, arguments)
    instructions = tuple(
        Instruction(each.op, each.arg, each.target, 10 * index, Location(1, 1))
        for index, each in enumerate(made.function.instructions)
    )
    function = type(made.function)(made.function.shape, instructions, made.function.tries)
    return facts_of(function)


def _named(facts: Facts, decisions: list[Decision]) -> Plan:
    context = Context("module", {}, DEFAULT)
    return named_plan(_function.__code__, facts, decisions, context, Counter())


def test_the_blocks_of_the_arms_of_a_branch() -> None:
    facts = _with_offsets(
        """
            LOAD_FAST a
            POP_JUMP_IF_FALSE -> other
            LOAD_CONST 1
            STORE_FAST x
            JUMP -> join
        other:
            LOAD_CONST 2
            STORE_FAST x
        join:
            LOAD_FAST x
            RETURN_VALUE
        """,
        ("a",),
    )
    (branch,) = facts.branches
    lowering = propose_branch(facts, branch)
    assert isinstance(lowering, BranchLowering)
    (site,) = _named(facts, [(branch.jump, "branch", lowering)]).sites
    assert site.inside == (((20, 40), (50, 60)),)
    assert site.place is None


LOOP = """
        LOAD_FAST a
        POP_JUMP_IF_FALSE -> end
    body:
        LOAD_FAST a
        STORE_FAST x
        LOAD_FAST a
        POP_JUMP_IF_TRUE -> {back}
    end:
        RETURN_CONST 1
    again:
        JUMP -> body
"""


def _places(back: str, *kinds: str) -> tuple[list[tuple[int, int, int] | None], Facts]:
    facts = _with_offsets(LOOP.format(back=back), ("a",))
    lowerings = [propose_branch(facts, each) for each in facts.branches]
    decisions = [
        (branch.jump, kind, lowering)
        for branch, kind, lowering in zip(facts.branches, kinds, lowerings, strict=True)
    ]
    return [each.place for each in _named(facts, decisions).sites], facts


def test_branches_that_an_iteration_comes_back_to_have_the_same_place() -> None:
    (before, inside), facts = _places("body", "branch", "branch")
    body, end = facts.graph.block_of[2], facts.graph.block_of[6]
    assert before == inside
    assert before is not None and before[:2] == (body, end)
    assert before[2] in (EXIT, end)


def test_blocks_that_only_jump_are_passed_over() -> None:
    direct, _ = _places("body", "branch", "branch")
    indirect, _ = _places("again", "branch", "branch")
    assert direct == indirect


def test_a_split_within_a_loop_has_no_place() -> None:
    (_, inside), _ = _places("body", "branch", SPLIT)
    assert inside is None

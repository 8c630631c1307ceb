"""The matrix itself: it covers all pairs, its effects can be seen, a fault is found; and a part."""

from __future__ import annotations

import gc
import json
import logging
import os
import time
from collections.abc import Iterator

import pytest
import torch

from tests.fuzz.bugs import PLANTED
from tests.fuzz.planted import applied
from tests.matrix.all_sides import judge_all_sides
from tests.matrix.comparison import (
    BROKEN,
    DIFFERS,
    LEFT_OUT,
    ONE_GRAPH,
    WORSE,
    Verdict,
    first_difference,
    isolated,
    isolated_run,
    judge,
    prepare,
    run,
)
from tests.matrix.effect import Effect
from tests.matrix.programs import (
    CONSTRUCT,
    EFFECT,
    MEMBERS,
    OBSERVER,
    Case,
    all_pairs,
    body_of,
    case_of,
    covering,
    pairs_of,
    source_of,
)
from tests.matrix.table import Record, page_of
from tests.observation import differences


@pytest.fixture(scope="module", autouse=True)
def _prepared() -> Iterator[None]:
    log, threads = logging.getLogger("torch"), torch.get_num_threads()
    level = log.level
    prepare("eager")
    yield
    log.setLevel(level)
    torch.set_num_threads(threads)
    gc.unfreeze()


# --- the choice of programs ----------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_pair_is_covered(seed: int) -> None:
    triples = covering(seed)
    assert {pair for triple in triples for pair in pairs_of(triple)} == all_pairs()
    assert triples == covering(seed)
    assert len(triples) < 1.01 * len(MEMBERS) * len(CONSTRUCT)


def test_the_number_of_pairs_is_that_of_the_tables() -> None:
    sizes = kinds, constructs, observers = len(MEMBERS), len(CONSTRUCT), len(OBSERVER)
    assert kinds >= 80 and len(EFFECT) > 300, sizes
    local = [kind for kind, (first, *_) in MEMBERS.items() if first.local]
    impossible = len(local) * sum(each.is_method for each in CONSTRUCT.values())
    expected = kinds * constructs + kinds * observers + constructs * observers - impossible
    assert len(all_pairs()) == expected


def test_every_effect_is_in_a_program_and_in_every_construct_where_all_are_asked_for() -> None:
    assert {each[0] for each in covering(0)} == set(EFFECT)
    assert len({each[:2] for each in covering(0, every=True)}) > 30 * len(EFFECT)


def test_a_case_is_the_same_whatever_else_is_chosen() -> None:
    triple = covering(0)[5]
    assert case_of(triple, 4) == case_of(triple, 4)
    assert len({case_of(triple, seed) for seed in range(20)}) > 5


def test_all_members_of_a_kind_are_on_a_variable_or_none() -> None:
    mixed = [kind for kind, each in MEMBERS.items() if len({bool(e.local) for e in each}) > 1]
    assert not mixed


# --- what programs show --------------------------------------------------------------------------


def _shown(effect: Effect) -> list[str]:
    """Return what differs between the sides in eager execution, but for the condition itself.

    Where the effect says how it is looked at, that, and what is written.
    """
    case = Case(effect.name, "if", "backward", training=True)
    one, other = (run(case, "eager", "eager", "", [side]).calls[0] for side in (False, True))
    found = [each for each in differences(one, other) if not each.startswith("state.['p']")]
    if effect.look == "None":
        return found
    return [each for each in found if "['look']" in each or "result.[2]" in each]


def _unseen(effects: list[Effect]) -> list[str]:
    return [each.name for each in effects if not _shown(each)]


def test_every_effect_is_seen() -> None:
    unseen = []
    for effects in MEMBERS.values():
        found = isolated(lambda these=effects: _unseen(these))
        assert isinstance(found, list), (effects[0].name, found)
        unseen += found
    # Of one kind, another one may have done the same before in that process.
    unseen = [each for each in unseen if isolated(lambda name=each: _unseen([EFFECT[name]]))]
    assert not unseen


def test_an_effect_that_nothing_shows_would_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    effect = Effect("list: nothing", "s.l.copy()", "list(s.l)", state="s.l = [1]")
    monkeypatch.setitem(EFFECT, effect.name, effect)
    assert isolated(lambda: _unseen([effect, EFFECT["list: append"]])) == [effect.name]


@pytest.mark.parametrize("name", OBSERVER)
def test_an_effect_on_the_wrong_side_is_found_by_each_observer(name: str) -> None:
    case = Case("container of tensors: list, append", "if", name, training=True)
    wrong = source_of(case).replace(f"if {case.predicate}:", "if x.sum() > 0:")
    right = isolated_run(case, "eager", "eager")
    assert not first_difference(right, isolated_run(case, "eager", "eager"), "eager")[1]
    assert first_difference(right, isolated_run(case, "eager", "eager", wrong), "eager")[1]


def test_every_construct_has_its_effect_on_one_side_only() -> None:
    both = {"both_sides", "finally", "comprehension", "generator_expression"}
    for name in set(CONSTRUCT) - both:
        case = Case("list: append", name, "behind the call", variation="plain")
        found = isolated_run(case, "eager", "eager", "", [False, True])
        looks = [each.state.parts["['look']"].parts for each in found.calls]  # type: ignore[union-attr]
        if name == "for_else":  # by Python's rule, when no item has ended the loop
            assert len(looks[1]) > 3, body_of(case)
        assert (len(looks[0]), len(looks[1]) > 3) == (3, True), body_of(case)


# --- processes -----------------------------------------------------------------------------------


def test_what_a_process_does_stays_in_it() -> None:
    found = isolated_run(Case("grad mode: set", "if", "behind the call"), "eager", "eager")
    assert not found.failed
    assert torch.is_grad_enabled()


def test_a_process_that_ends_or_hangs_is_told() -> None:
    assert isolated(lambda: os._exit(3)) == "the process has died"
    assert isolated(lambda: time.sleep(9), 0.2) == "more than 0 seconds"
    assert "ZeroDivisionError" in isolated(lambda: 1 / 0)


# --- verdicts ------------------------------------------------------------------------------------


def test_a_planted_fault_is_found() -> None:
    bug = next(each for each in PLANTED if each.name == "stores of arms are lost")
    case = Case("attribute: store", "if_else", "behind the call")
    assert judge(case, "eager").status == ONE_GRAPH
    with applied(bug):
        found = judge(case, "eager")
    assert found.status == DIFFERS
    assert "look" in found.mended or "['s'].a" in found.mended


def test_a_planted_fault_of_a_side_that_no_input_takes_is_found() -> None:
    bug = next(each for each in PLANTED if each.name == "stores of arms are lost")
    case = Case("attribute: store", "if_else", "behind the call", first=False)
    found = judge_all_sides(case, "eager")
    assert (found.status, found.sites) == (ONE_GRAPH, ("true forced", "false seen"))
    with applied(bug):
        found = judge_all_sides(case, "eager")
    assert found.status == DIFFERS and "told" in found.mended


def test_records_are_kept_and_make_a_page() -> None:
    case = case_of(("list: append", "while", "printed"), 0)
    records = [
        Record(case, Verdict(ONE_GRAPH, sites=("mended where",)), 1.5),
        Record(case_of(("list: pop", "while", "raised"), 0), Verdict(DIFFERS, "a | b"), 1.5),
    ]
    again = [Record.of_row(json.loads(json.dumps(each.as_row()))) for each in records]
    assert [each.case for each in again] == [each.case for each in records]
    page = page_of(again, "eager")
    assert "| list |  | 1 · 0 · 0 · 1 |" in page
    assert "| list: pop / while / raised |" in page and "a / b" in page


#: Of the run with the seed 0: these have been of one graph, or equal, when they were chosen.
@pytest.mark.parametrize("number", range(3, 2600, 400))
def test_a_part_of_the_matrix(number: int) -> None:
    case = case_of(covering(0)[number], 0)
    found = judge(case, "eager")
    assert found.status not in (DIFFERS, WORSE), f"{found.mended}\n{body_of(case)}"
    assert found.status in (ONE_GRAPH, BROKEN) or found.stock


@pytest.mark.parametrize("number", range(1, 2600, 400))
def test_a_part_of_the_matrix_on_all_sides(number: int) -> None:
    case = case_of(covering(0)[number], 0)
    found = judge_all_sides(case, "eager")
    assert found.status in (ONE_GRAPH, LEFT_OUT), f"{found.mended}\n{body_of(case)}"

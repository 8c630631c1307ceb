"""The parts of the fuzzer do what they say; above all, its oracles and its search can fail."""

from __future__ import annotations

import itertools
import random
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import CodeType

import pytest
import torch

from tests.fuzz.bugs import PLANTED
from tests.fuzz.containers import random_containers
from tests.fuzz.grammar import Choices, program_of, random_program
from tests.fuzz.oracles import SAME, SLOW, STOCK_TOO, WRONG, Verdict, judge
from tests.fuzz.plain import mend_in_place
from tests.fuzz.planted import applied, replaced
from tests.fuzz.prelude import NAMES
from tests.fuzz.programs import Program, factory_of, inputs_of
from tests.fuzz.reduce import reduced
from tests.fuzz.saved import save, saved
from tests.fuzz.search import program_about, search, signature
from tests.fuzz.steering import Pool, visited

BODY = """
def make():
    def program(x):
        unused = x * 3
        if x.sum() > 0:
            y = x * 2
        else:
            y = x - 1
        return y
    return program
"""
CALLS = ("torch.tensor([1.0, 2.0, 3.0])", "torch.tensor([-1.0, -2.0, 0.5])")
BRANCH = Program(BODY, CALLS)


pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


def test_a_program_is_made_anew_each_time() -> None:
    make = factory_of(BRANCH)
    one, other = make(), make()
    assert one.__code__ is not other.__code__
    assert one.__globals__ is not other.__globals__
    (first, second) = inputs_of(BRANCH)()
    assert first.arguments[0].tolist() == [1.0, 2.0, 3.0]
    assert second.arguments[0].tolist() == [-1.0, -2.0, 0.5]


def test_a_seed_stands_for_one_program() -> None:
    programs = [random_program(random.Random(seed)) for seed in (1, 1, 2)]
    assert programs[0] == programs[1] != programs[2]


def test_choices_that_are_made_again_lead_to_the_same_program() -> None:
    first = Choices(random.Random(5))
    program = program_of(first.pick)
    assert program_of(Choices(random.Random(6), first.made).pick) == program


def test_most_variations_of_a_program_are_like_it_and_none_is_it() -> None:
    first = Choices(random.Random(5))
    program, source = program_of(first.pick), random.Random(1)
    others = [program_of(first.varied(source).pick) for _ in range(40)]
    assert len({each.text for each in others}) > 20
    assert sum(each.training == program.training for each in others) > 25


def test_a_search_goes_every_way_that_a_function_was_come_to() -> None:
    source, pool = random.Random(2), Pool()
    for oracle, way in (*[("compiled", ("often",))] * 50, ("fullgraph", ("seldom",))):
        choices = Choices(random.Random(3))
        program_of(choices.pick)
        pool.add(oracle, choices, {"a place": {way}})
    oracles = [pool.next(source, "a place", lambda: "eager")[0] for _ in range(300)]
    assert min(oracles.count(each) for each in ("compiled", "fullgraph", "eager")) > 50
    assert pool.next(source, "", lambda: "eager")[0] == "eager"


def test_it_is_noted_in_which_ways_a_function_is_come_to() -> None:
    with visited(["bcmend.tracing.lowering.where.by_where"], replaced) as ways:
        judge("compiled", BRANCH)
    (((kinds, result, is_given, _),),) = ways.values()
    assert kinds[1:2] == ("TensorVariable",)
    assert (result, is_given) == ("list", False)


def test_output_that_fails_may_be_followed_by_other_output_and_nothing_else_may_differ() -> None:
    failing = "print('a', file=full)\n        print('b')\n        unused"
    body = NAMES["full"] + BODY.replace("unused", failing)
    assert judge("compiled", replace(BRANCH, body=body)).kind == SAME
    (planted,) = (each for each in PLANTED if each.name == "records are delivered in reverse")
    other = body.replace("print('a'", "print('c')\n        print('a'")
    with applied(planted):
        assert judge("compiled", replace(BRANCH, body=other)).kind == WRONG


@pytest.mark.parametrize("oracle", ["eager", "plain", "compiled", "fullgraph"])
def test_a_right_program_is_the_same(oracle: str) -> None:
    assert judge(oracle, BRANCH).kind == SAME


@pytest.mark.parametrize(
    ("oracle", "bug"),
    [
        ("compiled", "where chooses the other side"),
        ("fullgraph", "where chooses the other side"),
        ("plain", "else is lost: both sides go to the first arm"),
        ("eager", "unpatch leaves the code"),
    ],
)
def test_an_oracle_sees_a_planted_bug(oracle: str, bug: str) -> None:
    (planted,) = (each for each in PLANTED if each.name == bug)
    with applied(planted):
        assert judge(oracle, BRANCH).kind == WRONG


def test_every_planted_bug_replaces_something_and_is_taken_back() -> None:
    assert len({each.name for each in PLANTED}) == len(PLANTED) >= 25
    for each in PLANTED:
        with applied(each):
            pass
    assert judge("compiled", BRANCH).kind == SAME


@pytest.mark.slow
@pytest.mark.parametrize("bug", ["too small a stack", "live-outs come back in another order"])
def test_a_search_finds_a_planted_bug(bug: str) -> None:
    # In a process of its own, as it forks many times.
    command = ["tests.fuzz.planted", "--only", bug, "--minutes", "1", "--seed", "3"]
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "1 of 1 found" in done.stdout) == (0, True), done.stderr


def test_code_that_is_mended_here_and_there_differs_from_code_that_is_mended_everywhere() -> None:
    def parts(code: CodeType) -> list[bytes]:
        inner = [
            part for each in code.co_consts if isinstance(each, CodeType) for part in parts(each)
        ]
        return [code.co_code, *inner]

    def written(source: random.Random | None) -> bytes:
        return b"".join(parts(mend_in_place(BRANCH, source)().__code__))

    assert len({written(None), *(written(random.Random(seed)) for seed in range(8))}) > 3


def test_a_program_that_does_not_end_is_slow() -> None:
    endless = replace(BRANCH, body=BODY.replace("unused = x * 3", "while True: pass"))
    assert judge("eager", endless, seconds=0.5).kind == SLOW


def test_reduction_keeps_what_fails_and_nothing_else() -> None:
    smaller = reduced(BRANCH, lambda program: "x - 1" in program.body, seconds=20.0)
    assert "x - 1" in smaller.body
    assert "unused" not in smaller.body
    assert "if" not in smaller.body
    assert len(smaller.calls) == 1


def test_a_failure_is_saved_and_read_again(tmp_path: Path) -> None:
    awkward = Program(BODY.lstrip("\n").replace("x * 3", "'\\n'"), CALLS, training=True)
    path = save(awkward, "compiled", 'call 0: it\'s "wrong"', 17, tmp_path)
    (found,) = saved(tmp_path)
    assert found.program == awkward
    assert (found.name, found.oracle, found.open) == (
        path.stem,
        "compiled",
        'call 0: it\'s "wrong"',
    )
    assert "program 17" in path.read_text()


def test_a_search_shares_its_time_and_says_what_it_tried() -> None:
    ticks = itertools.count()
    found = list(search(3, 4.0, {"plain": 0.5, "eager": 0.5}, clock=lambda: float(next(ticks))))
    assert len(found) == 4
    assert {each.oracle for each in found} == {"plain", "eager"}
    assert len({each.seed for each in found}) == len(found)


def test_a_signature_leaves_numbers_out() -> None:
    texts = (f"call {n}: result: values [{n}.0] and [2.0]" for n in (1, 3))
    one, other = (signature(Verdict(WRONG, (text,))) for text in texts)
    assert one == other == "result: values [#] and [#]"


def test_programs_about_containers_run_and_tell_of_identity() -> None:
    for seed in range(60):
        program = random_containers(random.Random(seed))
        assert program == random_containers(random.Random(seed))
        run = factory_of(program)()
        for each in inputs_of(program)():
            result = run(*each.arguments)
            assert isinstance(result, tuple) and isinstance(result[0], torch.Tensor)


def test_programs_about_containers_have_aliases_that_are_changed() -> None:
    texts = [random_containers(random.Random(seed)).body for seed in range(60)]
    for wanted in (
        r"^\s+\w+ = \w+ = ",
        r" is ",
        r"\.append\(",
        r"nonlocal",
        r"return x \+ .*early",
    ):
        found = [text for text in texts if re.search(wanted, text, re.MULTILINE)]
        assert len(found) > 5, wanted


LOST_ALIAS = Program(
    """
def make():
    def program(x):
        a = [1]
        b = list(a) if torch.compiler.is_compiling() else a
        if x.sum() > 0:
            b.append(2)
        return x + len(a), a is b
    return program
""",
    CALLS,
)


def test_a_lost_alias_is_found() -> None:
    """The program itself loses it wherever it is compiled, on torch alone as well."""
    assert judge("compiled", LOST_ALIAS).kind == STOCK_TOO


def test_the_subjects_of_a_search_take_turns() -> None:
    both = [program_about(("anything", "containers"), number) for number in range(4)]
    assert both[1] == random_containers(random.Random(1)) != both[0]
    assert both[2] == random_program(random.Random(2))
    assert program_about(("containers",), 2) == random_containers(random.Random(2))

"""Bytecode that no compiler writes is taken apart, mended and put together all the same."""

from __future__ import annotations

import random
from types import CodeType

import pytest

from bcmend.bytecode.decode import decode
from bcmend.bytecode.instructions import FunctionCode
from bcmend.bytecode.names_used import code_objects
from tests.bytecode.roundtrip import source_files
from tests.fuzz.breakages import breakage_problems
from tests.fuzz.mutations import found_problems, mutated

SOURCE = """
def f(a, b):
    for c in a:
        if c > 1:
            b += 2
        elif c is None:
            continue
        else:
            break
    return b if a else 3
"""


def _code() -> CodeType:
    module = compile(SOURCE, "mutated.py", "exec")
    return next(each for each in module.co_consts if isinstance(each, CodeType))


def test_a_mutation_differs_and_is_treated_rightly() -> None:
    function = decode(_code())
    changed = [mutated(function, random.Random(seed)) for seed in range(20)]
    assert sum(each != function for each in changed) > 10
    assert len({each.instructions for each in changed}) > 5
    assert [found_problems(_code(), seed) for seed in range(20)] == [[]] * 20


def test_a_wrong_assembler_is_found_by_mutations(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(code: CodeType) -> FunctionCode:
        return mutated(decode(code), random.Random(1), changes=9)

    monkeypatch.setattr("tests.fuzz.mutations.decode", wrong)
    assert any(found_problems(_code(), seed) for seed in range(5))


@pytest.mark.parametrize("name", ["argparse", "tarfile", "statistics"])
def test_mutated_functions_of_the_standard_library(name: str) -> None:
    (path,) = source_files(name)
    found = [*code_objects(compile(path.read_bytes(), str(path), "exec", dont_inherit=True))]
    source = random.Random(0)
    for code in source.sample(found, 25):
        assert found_problems(code, source.randrange(2**32)) == [], code.co_qualname


def test_broken_functions_are_refused_or_sound() -> None:
    assert [[*breakage_problems(_code(), random.Random(seed))] for seed in range(400)] == [[]] * 400


def test_an_error_of_another_kind_is_found_by_breakages(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_looking(*_: object) -> CodeType:
        raise KeyError("NO_SUCH_INSTRUCTION")

    monkeypatch.setattr("tests.fuzz.breakages.assemble", without_looking)
    assert any("KeyError" in str(found_problems(_code(), seed)) for seed in range(20))

"""The context of mending, and its result."""

from __future__ import annotations

from types import CodeType

from bcmend.policy import DEFAULT
from bcmend.rewrite.mended import Context, Mended, Written, any_lowered, offsets_in
from bcmend.rewrite.sites.plan import Lowering, OutputLowering, Site, SiteRefusal


def _one() -> None: ...


def _other() -> None: ...


ONE, OTHER = _one.__code__, _other.__code__
LOWERED = OutputLowering(0, 4, (), None)


def _site(decision: Lowering | SiteRefusal) -> Site:
    return Site("module.f:1:output", "output", 0, 1, 2, decision)


def test_places_belong_to_a_code_object() -> None:
    context = Context(
        "module",
        {},
        DEFAULT,
        asked=frozenset([(id(ONE), 2)]),
        wide=frozenset([(id(ONE), 4)]),
        splits=frozenset([(id(ONE), 6), (id(OTHER), 8)]),
        calls=frozenset([(id(ONE), 10)]),
        masked_loops=frozenset([(id(OTHER), 12)]),
    )
    assert offsets_in(ONE, context.splits) == [6] and offsets_in(OTHER, context.splits) == [8]
    assert offsets_in(ONE, context.masked_loops) == []
    assert offsets_in(OTHER, context.masked_loops) == [12]
    assert context.seen == {
        (id(ONE), 2),
        (id(ONE), 6),
        (id(OTHER), 8),
        (id(ONE), 10),
        (id(OTHER), 12),
    }


def test_a_context_begins_without_places() -> None:
    context = Context("module", {}, DEFAULT)
    assert context.seen == frozenset() and offsets_in(ONE, context.splits) == []


def test_a_refusal_is_no_lowering() -> None:
    refused, lowered = _site(SiteRefusal("generator")), _site(LOWERED)
    assert not any_lowered([]) and not any_lowered([(ONE, refused)])
    assert any_lowered([(ONE, refused), (ONE, lowered)])
    assert Mended(ONE, ((ONE, lowered),), lambda: _written([])).has_lowerings
    assert not Mended(ONE, ((ONE, refused),), lambda: _written([])).has_lowerings


def _written(calls: list[int]) -> Written:
    calls.append(1)
    return Written(ONE, OTHER, {OTHER: ONE})


def test_code_is_written_once_and_on_demand() -> None:
    calls: list[int] = []
    mended = Mended(ONE, (), lambda: _written(calls))
    assert calls == []
    found: tuple[CodeType, CodeType] = (mended.shell, mended.body)
    assert found == (ONE, OTHER) and mended.sources == {OTHER: ONE}
    assert calls == [1]

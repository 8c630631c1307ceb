"""Forms of a branch, the regions that they belong to, and the sites of a plan."""

from __future__ import annotations

from bcmend.cfg.dominance import EXIT
from bcmend.names import LEAVES, SPLIT
from bcmend.rewrite.sites.plan import (
    BranchLowering,
    Lowering,
    OutputLowering,
    Plan,
    RegionKey,
    Site,
    SiteRefusal,
    chained,
)


def _branch(join: int, outputs: tuple[str, ...] = ()) -> BranchLowering:
    return BranchLowering(
        jump=7,
        then_entry=1,
        else_entry=2,
        join=join,
        blocks=frozenset([1, 2]),
        base=3,
        operands=0,
        extra=0,
        retained_if=None,
        inputs=(),
        outputs=outputs,
        cells=(),
        first=(),
        outer=frozenset([5]),
    )


def test_forms_are_tried_in_their_order() -> None:
    narrow, wide, widest = _branch(3), _branch(4), _branch(EXIT)
    found = chained([narrow, wide, widest])
    assert [each.join for each in found.alternatives] == [3, 4, EXIT]
    assert found.wider is not None and found.wider.wider == widest
    assert narrow.wider is None  # the forms themselves stay as they are


def test_a_single_form_is_itself() -> None:
    form = _branch(3)
    assert chained([form]) is form and form.alternatives == (form,)


def test_only_a_join_at_the_end_returns() -> None:
    assert _branch(EXIT).returns and not _branch(0).returns


def test_branches_that_differ_in_their_arms_alone_share_a_region() -> None:
    form = _branch(3, ("y",))
    assert form.region == RegionKey(3, 3, ("y",), frozenset([5]))
    assert form.region != _branch(4, ("y",)).region
    assert form.region != _branch(3).region


def test_outputs_that_are_flags_of_exits() -> None:
    assert _branch(3, ("a", LEAVES.format(8, 0), "b", LEAVES.format(8, 1))).flags == {1, 3}
    assert _branch(3, ("a",)).flags == frozenset()


def _site(index: int, kind: str, decision: Lowering | SiteRefusal) -> Site:
    return Site(f"f:{index}:{kind}", kind, index, None, 2 * index, decision)


def test_a_plan_divides_lowerings_and_splits_and_leaves_refusals_out() -> None:
    output = _site(1, "output", OutputLowering(0, 2, (), None))
    branch, split = _site(4, "branch", _branch(3)), _site(4, SPLIT, _branch(EXIT))
    refused = _site(6, "branch", SiteRefusal("stack-shape"))
    plan = Plan([output, branch, split, refused])
    assert plan.lowerings == {1: output, 4: branch}
    assert plan.splits == {4: split}
    assert Plan().lowerings == {}

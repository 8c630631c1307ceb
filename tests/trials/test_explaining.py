"""`bcmend.explain`: what it finds, and that it leaves nothing behind."""

from __future__ import annotations

import functools
import json
import random
import time

import pytest

torch = pytest.importorskip("torch")

import bcmend  # noqa: E402
from bcmend.errors import CallError, TrialError, UnsupportedObject  # noqa: E402
from bcmend.reports.explanation import Cause, Explanation  # noqa: E402
from bcmend.trials import apart, explaining  # noqa: E402
from tests.trials import programs  # noqa: E402

#: Quick: nothing is compiled, and no compiled call is timed.
explain = functools.partial(bcmend.explain, backend="eager")


@pytest.fixture(autouse=True)
def nothing_else_is_patched():
    bcmend.unpatch()
    yield
    bcmend.unpatch()


@pytest.fixture
def in_this_process(monkeypatch):
    """As where no copy of the process can be made."""
    monkeypatch.setattr(apart, "makes_copies", lambda **_: False)
    monkeypatch.setattr(explaining, "makes_copies", lambda **_: False)


@pytest.fixture(scope="module")
def explained() -> Explanation:
    torch.manual_seed(0)
    return explain(programs.Net(), torch.ones(2, 4))


def test_both_sides_are_counted(explained):
    stock, mended = explained.stock, explained.mended
    assert (mended.graphs, mended.breaks, mended.share) == (1, 0, 1.0)
    assert stock.graphs > 1 and stock.breaks > 1 and stock.share < 1
    assert stock.recompiled == mended.recompiled == 0
    assert mended.operators > 0 and stock.raised == mended.raised == explained.eager_raised == ""


def test_no_times_are_had_of_a_back_end_that_only_traces(explained):
    for side in (explained.stock, explained.mended):
        assert side.first is side.later is None
    text = str(explained)
    assert "'eager' only traces" in text and "later call" not in text and " s;" not in text


def test_times_are_ratios_to_eager_execution_with_its_backward_pass_in_training():
    model, x = programs.Layer().eval(), torch.ones(2, 4)
    found = bcmend.explain(model, x, train=True)
    stock, mended = found.stock, found.mended
    assert found.backend == "inductor" and found.train and not model.training
    assert mended.share == 1.0  # a backward pass is in no graph, and is not counted
    assert (stock.breaks, mended.breaks) == (1, 0)
    assert stock.first > stock.later > 0 and mended.first > mended.later > 0
    assert "with its backward pass" in str(found)
    assert all(each.grad is None for each in model.parameters())


def test_a_call_without_gradients_cannot_be_trained():
    found = explain(lambda x: x.sum() > 0, torch.ones(2), train=True)
    assert found.raised.startswith("CallError: nothing that the call returns has a gradient")


def test_causes_have_their_place_their_module_and_what_was_made_of_them(explained):
    check, branch = explained.causes
    assert check.source == "if x.isnan().any():"
    assert (check.function, check.modules) == ("forward", ("",))
    assert branch.source == "if y.sum() > 0:"
    assert branch.modules == ("layers.0", "layers.1")
    assert branch.number == check.number == "GB0170"
    assert branch.stock > 1 and branch.mended == 0
    assert [each.treatments[0].kind for each in explained.causes] == ["guard", "branch"]
    assert {each.treatments[0].status for each in explained.causes} == {"mended"}
    assert sum(each.stock for each in explained.causes) == explained.stock.breaks


def test_what_stays_a_break_is_a_cause(capfd):
    found = explain(programs.reads_a_file, torch.ones(2))
    assert found.mended.breaks == sum(each.mended for each in found.causes) > 0
    assert all("still breaks the graph" in each.outcome for each in found.causes)
    assert {each.function for each in found.causes} == {"reads_a_file"}


def test_the_same_is_found_while_something_else_is_patched():
    alone = explain(programs.reads_a_file, torch.ones(2))
    model = bcmend.patch(programs.Net())
    torch.compile(model)(torch.ones(2, 4))
    found = explain(programs.reads_a_file, torch.ones(2))
    assert found.causes == alone.causes
    assert found.mended.breaks == alone.mended.breaks > 0


def test_a_refusal_comes_with_its_hint():
    policy = bcmend.Policy(off=("*:branch",))
    model = programs.Layer()
    with bcmend.patched(model, policy=policy):
        (cause,) = explain(model, torch.ones(2, 4)).causes
    (treatment,) = cause.treatments
    assert (treatment.status, treatment.how) == ("refused", "switched-off")
    assert "Policy(off=...)" in treatment.hint and cause.mended == 1


def test_where_there_is_nothing_to_mend_it_says_so():
    found = explain(programs.Whole().train(), torch.ones(2, 4))
    assert found.causes == () and found.stock.graphs == found.mended.graphs == 1
    assert "nothing to mend" in str(found) and "nothing to mend" in found.to_html()


@pytest.mark.parametrize("how", ["in a copy", "here"])
def test_nothing_of_the_caller_s_is_changed(how, request, capfd):
    if how == "here":
        request.getfixturevalue("in_this_process")
    model = programs.Net()
    model.layers[0].linear.weight.grad = torch.ones(4, 4)
    code = programs.Net.forward.__code__
    before = {name: each.clone() for name, each in model.state_dict().items()}
    states = torch.get_rng_state(), random.getstate()
    x = torch.ones(2, 4)
    explain(model, x)
    assert programs.Net.forward.__code__ is code
    assert torch.equal(torch.get_rng_state(), states[0]) and random.getstate() == states[1]
    assert torch.equal(model.layers[0].linear.weight.grad, torch.ones(4, 4))
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())
    if how == "in a copy":
        assert capfd.readouterr() == ("", "")


def test_what_was_compiled_and_patched_stays_so():
    model, graphs = programs.Net(), []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    with bcmend.patched(model):
        compiled = torch.compile(model, backend=backend, fullgraph=True)
        compiled(torch.ones(2, 4))
        sites, traces = bcmend.report(model).sites, len(bcmend.why(model).traces)
        assert explain(compiled, torch.ones(2, 4)).stock.graphs > 1
        compiled(torch.ones(2, 4))
        assert len(graphs) == 1
        assert bcmend.report(model).sites == sites and len(bcmend.why(model).traces) == traces


def test_what_cannot_be_copied_is_explained_in_a_copy_of_the_process():
    assert explain(programs.Uncopyable(), torch.ones(2, 4)).mended.breaks == 0


@pytest.mark.usefixtures("in_this_process")
def test_what_cannot_be_copied_is_an_error_in_this_process():
    with pytest.raises(TrialError, match="cannot be copied"):
        explain(programs.Uncopyable(), torch.ones(2, 4))


@pytest.mark.usefixtures("in_this_process")
def test_in_this_process_nothing_may_be_patched():
    with (
        bcmend.patched(programs.Whole()),
        pytest.raises(TrialError, match="something is patched"),
    ):
        explain(programs.Layer(), torch.ones(2, 4))


@pytest.mark.usefixtures("in_this_process")
def test_in_this_process_it_says_what_that_costs():
    found = explain(programs.Layer(), torch.ones(2, 4))
    assert not found.is_copied and "compiled anew" in str(found)
    assert (found.stock.breaks, found.mended.breaks) == (1, 0)


def test_a_call_that_raises_is_explained():
    found = explain(programs.Net(), torch.full((2, 4), torch.nan))
    expected = "ValueError: not a number"
    assert (found.eager_raised, found.mended.raised) == (expected, expected)
    assert found.raised == expected and expected in str(found)


def test_a_call_that_raises_before_any_break_says_nothing_about_capture():
    found = explain(torch.nn.Linear(3, 2), torch.ones(2, 4))
    assert "RuntimeError" in found.raised and not found.causes
    for text in (str(found), found.to_html()):
        assert "the call raised RuntimeError" in text and "nothing to mend" not in text


@pytest.mark.parametrize(
    "obj, given, kind, expected",
    [
        (3, {}, UnsupportedObject, "cannot patch an object of type int"),
        (programs.Net, {}, UnsupportedObject, "Net is a class: pass an object of it"),
        (programs.Net(), {}, CallError, "missing a required argument: 'x'"),
        (programs.Net(), {"x": 1, "backend": "none"}, CallError, "no back end 'none'"),
    ],
)
def test_wrong_input_is_an_error_that_says_what_to_do(obj, given, kind, expected):
    with pytest.raises(kind, match=expected):
        bcmend.explain(obj, **given)


def test_the_forms_agree(explained):
    found = explained.to_dict()
    assert json.loads(explained.to_json()) == found and found["schema"] == 1
    assert found["causes"][1]["modules"] == ["layers.0", "layers.1"]
    text, page = str(explained), explained.to_html()
    for cause in explained.causes:
        assert cause.source in text and cause.number in page
    assert "&gt; 0:" in page and "prefers-color-scheme: dark" in page
    assert "http" not in page and "<script" not in page


def test_a_copy_that_ends_is_an_error():
    def ends(subject):
        import os

        os._exit(3)

    subject = apart.TriedCall(None, (), {})
    with pytest.raises(TrialError, match="status 3"):
        apart.run_apart(subject, ends)


def test_what_a_try_raises_is_an_error():
    def fails(subject):
        raise KeyError("a key")

    with pytest.raises(TrialError, match="KeyError: 'a key'"):
        apart.run_apart(apart.TriedCall(None, (), {}), fails)


def test_a_copy_that_does_not_begin_is_an_error(monkeypatch):
    """As where another thread held a lock when the copy was made, which is held in it for ever."""

    class Hanging(apart.TriedCall):
        def begin(self):
            time.sleep(1000)

    monkeypatch.setattr(apart, "_SECONDS", 0.2)
    monkeypatch.setattr(apart, "_COPIES", 2)
    with pytest.raises(TrialError, match="another thread"):
        apart.run_apart(Hanging(None, (), {}), lambda subject: 1)


def test_a_method_and_a_partial_of_one_have_the_paths_of_their_module():
    model = programs.Net()
    for called in (model.forward, functools.partial(model.forward)):
        modules = [each.modules for each in explain(called, torch.ones(2, 4)).causes]
        assert ("",) in modules and any("layers.0" in each for each in modules)


def _marked(cause: Cause) -> list[str]:
    return [piece.text for line in cause.lines for piece in line.pieces if piece.is_marked]


def test_the_expressions_of_breaks_are_marked(explained):
    assert [_marked(each) for each in explained.causes] == [["x.isnan().any()"], ["y.sum() > 0"]]


def test_breaks_and_operators_are_at_their_submodules(explained):
    parts = {each.path: each for each in explained.parts}
    assert sorted(parts) == sorted(path for path, _ in programs.Net().named_modules())
    assert {path for path, each in parts.items() if each.stock_breaks} == {
        "",
        "layers.0",
        "layers.1",
    }
    assert sum(each.stock_breaks for each in explained.parts) == explained.stock.breaks
    for side in ("stock", "mended"):
        counts = [count for each in explained.parts for _, count in getattr(each, side)]
        assert sum(counts) == getattr(explained, side).operators
    assert parts["layers.0.linear"].mended == ((1, 1),) == parts["layers.1.linear"].mended


def test_a_break_in_a_function_is_at_the_submodule_that_calls_it():
    found = bcmend.explain(programs.Reading(), torch.ones(2, 4))
    parts = {each.path: each for each in found.parts}
    assert parts["reader"].mended_breaks == found.mended.breaks > 0
    assert parts["drop"].stock_breaks > 0 and parts["drop"].mended_breaks == 0
    assert {each.function for each in found.remaining} == {"reads_a_file"}
    assert found.verdict == f"{found.stock.breaks} breaks -> {found.mended.breaks}; 1 place left"
    (drop,) = [each for each in found.causes if each not in found.remaining]
    assert _marked(drop) == ["torch.rand([]) < self.rate"]
    assert [each.status for each in drop.treatments] == ["known"]


def test_a_function_has_no_picture_of_modules():
    found = bcmend.explain(programs.reads_a_file, torch.ones(2))
    (functions,) = found.parts
    assert functions.path is None and functions.stock_breaks == found.stock.breaks


def test_what_is_known_is_reported_where_there_is_no_branch():
    model = bcmend.patch(programs.LayerDrop())
    x = torch.ones(2)
    assert torch.equal(torch.compile(model, backend="eager", fullgraph=True)(x), x + 1)
    report = bcmend.report(model)
    assert report.verdict == "1 place mended by what is known, nothing left"
    assert [each.status for each in report.sites] == ["known"] and report.mended == ()
    assert "every number that can be drawn" in str(report) and report.is_whole


def test_a_report_underlines_where_a_trace_has_stopped():
    model = bcmend.patch(programs.Reader())
    torch.compile(model, backend="eager")(torch.ones(2))
    report = bcmend.report(model)
    assert not report.is_whole and report.places_left == len(report.still_breaking) == 1
    (stop,) = report.still_breaking
    assert "| with open(__file__) as file:" in str(report) and stop.span is not None

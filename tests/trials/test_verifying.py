"""`bcmend.verify`: that it finds what differs, and nothing else."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")

import bcmend  # noqa: E402
from bcmend.errors import CallError, UnsupportedObject  # noqa: E402
from bcmend.trials import apart, verifying  # noqa: E402
from bcmend.trials.frozen import Freezer  # noqa: E402
from tests.registrations import registrations_undone  # noqa: E402
from tests.trials import programs  # noqa: E402

X = torch.ones(2, 4)


@pytest.fixture(autouse=True)
def nothing_else_is_patched():
    bcmend.unpatch()
    yield
    bcmend.unpatch()


EQUAL = {
    "a check, branches, a print": (programs.Net, X, {}),
    "three steps of training": (programs.Net, X, {"runs": 3, "train": True}),
    "a call that raises": (programs.Net, X * torch.nan, {}),
    "with AOTAutograd": (programs.Net, X, {"backend": "aot_eager", "train": True}),
    "nothing to mend, with dropout": (programs.Whole, X, {"train": True}),
    "output of all kinds, random numbers": (programs.Noisy, torch.ones(3), {}),
    "state of Python": (programs.Growing, X, {}),
    "what cannot be copied": (programs.Uncopyable, X, {}),
    "a graph break": (lambda: programs.reads_a_file, X, {}),
    "a bound method": (lambda: programs.Net().forward, X, {}),
}


@pytest.mark.parametrize("make, x, options", EQUAL.values(), ids=EQUAL)
def test_what_is_equal_is_found_to_be(make, x, options):
    verdict = bcmend.verify(make(), x, **options)
    assert verdict.difference is None and verdict.equal
    assert verdict.each_call_raised is bool(x.isnan().any())
    assert ("each call raised" if verdict.each_call_raised else "equal in") in str(verdict)


class _RaisesOnce(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls == 1:
            raise KeyError("not yet")
        return x * 2 if x.sum() > 0 else x


def test_where_a_copy_cannot_go_back_it_is_tried_in_this_process(monkeypatch):
    monkeypatch.setattr(apart, "_copies_go_back", lambda: False)
    verdict = bcmend.verify(programs.Net(), X, train=True, backend="aot_eager")
    assert verdict.equal and not verdict.is_copied and not verdict.each_call_raised
    assert bcmend.verify(programs.Net(), X).is_copied


@pytest.mark.parametrize("succeeds", [True, False])
def test_whether_a_copy_can_go_back_is_tried_in_one(monkeypatch, succeeds):
    def backward(tensor):
        if not succeeds:
            raise RuntimeError("autograd has threads")

    monkeypatch.setattr(torch.Tensor, "backward", backward)
    assert apart.makes_copies(goes_back=True) is (succeeds and apart.makes_copies())


def test_what_raises_in_some_calls_is_compared():
    verdict = bcmend.verify(_RaisesOnce(), X)
    assert verdict.raised == ("KeyError: 'not yet'", "")
    assert verdict.equal and not verdict.each_call_raised and "equal in" in str(verdict)


def test_where_nothing_is_mended_that_comes_first():
    text = str(bcmend.verify(torch.nn.Linear(4, 2), X))
    assert text.startswith("bcmend: Linear: no site was mended, nothing to compare: equal in ")


def test_functions_of_no_module_are_compared():
    """Code that is run in a dictionary without a name makes such functions."""
    names = {}
    exec("def helper(x):\n    return x * 2", names)
    exec("def program(x):\n    print(x.sum())\n    return helper(x) if x.sum() > 0 else x", names)
    assert names["program"].__module__ is None
    assert bcmend.verify(names["program"], X).equal


def test_equal_calls_are_of_mended_code():
    sites = bcmend.verify(programs.Net(), X).sites
    assert {each.kind for each in sites} == {"branch", "guard", "output"}


def values(layer, x):
    return x * 2 + (x == x[0, 0]) * 1e-6


def dtype(layer, x):
    return (x * 2).double()


def shape(layer, x):
    return (x * 2)[:, :1]


def strides(layer, x):
    return (x * 2).t().contiguous().t()


def prints(layer, x):
    print("other")
    return x * 2


def stores(layer, x):
    layer.other = 1
    return x * 2


def changes_a_parameter(layer, x):
    with torch.no_grad():
        layer.linear.weight.add_(1)
    return x * 2


def draws(layer, x):
    torch.rand(1)
    return x * 2


def other_gradients(layer, x):
    return (x * 2) + (x - x.detach())


DIFFERENT = {
    values: ("result", "of 8 values differ"),
    dtype: ("result", "dtype torch.float64"),
    shape: ("result", "shape (2, 1)"),
    strides: ("result", "stride (1, 2)"),
    prints: ("output", "has [0]"),
    stores: ("state", "has .other"),
    changes_a_parameter: ("state", "at [0, 0]"),
    draws: ("generators", "'"),
}


@pytest.mark.parametrize("other", DIFFERENT, ids=lambda each: each.__name__)
def test_what_differs_is_said_with_the_sites(other):
    torch.manual_seed(0)
    aspect, mended = DIFFERENT[other]
    with registrations_undone():
        bcmend.register_capture(programs.step, other)
        verdict = bcmend.verify(programs.Stepping(), X)
    found = verdict.difference
    assert (found.call, found.aspect, found.stock) == (1, aspect, False)
    assert mended in found.mended and found.where.startswith(aspect)
    assert not verdict.equal and verdict.sites
    text = str(verdict)
    assert f"call 1, {aspect}" in text
    for site in verdict.sites:
        assert f"Policy(off=({site.name!r},))" in text


def kept_as_it_is(layer, x):
    row, y = [1], x * 2
    layer.rows, layer.tensors = (row, row), (y, y + 0)
    programs.COUNTED.append(1)
    return x


def kept_twice(layer, x):
    y = x * 2
    layer.rows, layer.tensors = ([1], [1]), (y, y + 0)
    programs.COUNTED.append(1)
    return x


def kept_as_one_tensor(layer, x):
    row, y = [1], x * 2
    layer.rows, layer.tensors = (row, row), (y, y)
    programs.COUNTED.append(1)
    return x


def kept_as_a_view(layer, x):
    row, y = [1], x * 2
    layer.rows, layer.tensors = (row, row), (y, y[:])
    programs.COUNTED.append(1)
    return x


def counted_twice(layer, x):
    programs.COUNTED.append(1)
    return kept_as_it_is(layer, x)


KEPT = {
    kept_twice: ("identity", "state.rows[1]", "is the object at state.rows[0]"),
    kept_as_one_tensor: ("identity", "state.tensors[1]", "is met here first"),
    kept_as_a_view: ("identity", "state.tensors[1]", "is met here first"),
    counted_twice: ("globals", "globals[tests.trials.programs.COUNTED]", "ends before"),
}


@pytest.mark.parametrize("other", KEPT, ids=lambda each: each.__name__)
def test_which_objects_are_one_is_compared_and_globals_are(other):
    with registrations_undone():
        bcmend.register_capture(programs.keep, other)
        found = bcmend.verify(programs.Keeping(), X).difference
    aspect, where, eager = KEPT[other]
    assert (found.aspect, found.eager) == (aspect, eager)
    assert where in found.where.replace("'", "")


def test_what_is_one_in_both_is_equal():
    with registrations_undone():
        bcmend.register_capture(programs.keep, kept_as_it_is)
        assert bcmend.verify(programs.Keeping(), X).equal


def test_whose_method_one_is_is_compared():
    def met_again(place):
        rows = [1], [1]
        freezer = Freezer(keeps_all=True)
        freezer.frozen((rows, rows[place].append), "")
        return freezer.met_again()

    assert met_again(0) == met_again(0) != met_again(1)


def test_a_tensor_may_be_a_new_one():
    """As docs/deviations.md says of merged results; what it holds is compared all the same."""
    from bcmend.trials.frozen import Freezer, first_other_identity

    def met_again(value):
        freezer = Freezer(keeps_all=False)
        freezer.frozen(value, "")
        return freezer.met_again()

    one = met_again([X, X, X, X[0]])
    for other in ([X + 0, X, X, X[0]], [X, X + 0, X, X[0]], [X, X, X, X[0] + 0]):
        assert first_other_identity(one, met_again(other), joins=False) is None
        assert first_other_identity(met_again(other), one, joins=False) is not None
    joined = met_again([X, X, X, X])
    assert first_other_identity(one, joined, joins=False) is not None
    assert first_other_identity(one, joined, joins=True) is None


def test_an_exception_that_does_not_come_is_a_difference():
    with registrations_undone():
        bcmend.register_capture(programs.fail, values)
        found = bcmend.verify(programs.Failing(), X).difference
    assert (found.aspect, found.mended) == ("exception", "None")


def test_gradients_are_compared_in_training():
    with registrations_undone():
        bcmend.register_capture(programs.step, other_gradients)
        assert bcmend.verify(programs.Stepping(), X).equal
        found = bcmend.verify(programs.Stepping(), X, train=True).difference
    assert (found.aspect, found.call) == ("gradients", 1) and ".grad" in found.where


def test_values_need_only_be_close_with_a_compiler():
    with registrations_undone():
        bcmend.register_capture(programs.step, values)
        assert bcmend.verify(programs.Stepping(), X, backend="aot_eager").difference is not None
    big = X * 1000
    for closer, further in ((big + 0.05, big + 0.2), (big, big * torch.nan), (big, big.long())):
        assert verifying.first_of([_of(big)], [_of(closer)], "inductor") is None
        assert verifying.first_of([_of(big)], [_of(further)], "inductor") is not None
    nothing = big * torch.nan
    assert verifying.first_of([_of(nothing)], [_of(nothing.clone())], "inductor") is None


def _of(value):
    from bcmend.trials.frozen import Freezer
    from bcmend.trials.observed import ASPECTS, IDENTITY

    freezer = Freezer(keeps_all=True)
    found = {aspect: freezer.frozen(value, aspect) for aspect in ASPECTS}
    return {**found, IDENTITY: freezer.met_again()}


def test_a_site_that_is_switched_off_is_not_mended():
    model = programs.Net()
    names = [site.name for site in bcmend.verify(model, X).sites]
    with bcmend.patched(model, policy=bcmend.Policy(off=tuple(names))):
        assert bcmend.verify(model, X).sites == ()


def test_what_differs_without_bcmend_too_says_so(monkeypatch):
    def compiled(obj, **options):
        return lambda x: obj(x) + 1

    monkeypatch.setattr(torch, "compile", compiled)
    found = bcmend.verify(programs.Whole().eval(), X).difference
    assert found.stock and found.aspect == "result"


def test_nothing_of_the_caller_s_is_changed():
    model = programs.Net().eval()
    before = {name: each.clone() for name, each in model.state_dict().items()}
    state, code = torch.get_rng_state(), programs.Net.forward.__code__
    bcmend.verify(model, X, train=True)
    assert not model.training and programs.Net.forward.__code__ is code
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())
    assert all(each.grad is None for each in model.parameters())
    assert torch.equal(torch.get_rng_state(), state)


def test_it_works_in_this_process(monkeypatch):
    for module in (apart, verifying):
        monkeypatch.setattr(module, "makes_copies", lambda **_: False)
    model = programs.Noisy()
    state = torch.get_rng_state()
    verdict = bcmend.verify(model, torch.ones(3), train=True)
    assert verdict.equal and verdict.sites and not verdict.is_copied
    assert torch.equal(torch.get_rng_state(), state)
    with registrations_undone():
        bcmend.register_capture(programs.step, dtype)
        assert bcmend.verify(programs.Stepping(), X).difference.aspect == "result"


@pytest.mark.parametrize(
    "obj, options, kind, expected",
    [
        (programs.Net(), {"runs": 0}, CallError, "positive number of calls, got 0"),
        (programs.Net(), {"y": 0}, CallError, "unexpected keyword argument 'y'"),
        ("text", {}, UnsupportedObject, "type str"),
    ],
)
def test_wrong_input_is_an_error_that_says_what_to_do(obj, options, kind, expected):
    with pytest.raises(kind, match=expected):
        bcmend.verify(obj, X, **options)


def test_json_says_what_the_text_does():
    verdict = bcmend.verify(programs.Layer(), X)
    found = json.loads(verdict.to_json())
    assert found == verdict.to_dict() and found["equal"] is True and found["schema"] == 1
    assert found["sites"][0]["kind"] == "branch"


def test_what_a_library_notes_of_a_compilation_is_no_difference(monkeypatch):
    compile_it = torch.compile

    def noting(model, *given, **options):
        """Do as Lightning does once it is imported."""
        compiled = compile_it(model, *given, **options)
        compiled._compile_kwargs = options
        return compiled

    monkeypatch.setattr(torch, "compile", noting)
    assert bcmend.verify(torch.nn.Linear(4, 2), X).equal


def test_empty_tensors_are_equal_whatever_their_steps():
    freezer = Freezer(keeps_all=False)
    stepless = torch.empty_strided((0,), (0,))
    assert freezer.frozen(stepless, "one") == Freezer(keeps_all=False).frozen(torch.ones(0), "one")
    other = Freezer(keeps_all=False).frozen(torch.ones(0, dtype=torch.float64), "one")
    assert freezer.frozen(stepless, "one") != other

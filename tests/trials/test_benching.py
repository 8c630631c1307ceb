"""`bcmend.bench`: what it measures of known programs, and that it leaves nothing behind."""

from __future__ import annotations

import os
import signal

import pytest

torch = pytest.importorskip("torch")

import bcmend  # noqa: E402
from bcmend.errors import CallError, TrialError, UnsupportedObject  # noqa: E402
from bcmend.trials import apart, benching, calls, side_calls, workers  # noqa: E402
from bcmend.trials.subject import only_traces  # noqa: E402
from tests.trials import programs  # noqa: E402

#: Seconds of later calls: a few turns of a few calls.
BRIEF = 0.5


class Twice(torch.nn.Module):
    """Three graphs on stock torch.compile: two conditions are read."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        y = x * self.weight
        if y.sum() > 0:
            y = y + 1
        if y.sum() > 100:
            y = y - 1
        return y * 2

    def fail(self, x):
        raise ValueError("never")


@pytest.fixture(scope="module")
def measured():
    model, x = Twice(), torch.ones(3)
    found = bcmend.bench(model, x, backend="eager", seconds=BRIEF)
    return found, model, x


def test_a_program_has_the_graphs_and_reads_that_it_has(measured):
    found = measured[0]
    assert (found.eager.graphs, found.stock.graphs, found.mended.graphs) == (None, 3, 1)
    assert (found.eager.breaks, found.stock.breaks, found.mended.breaks) == (None, 2, 0)
    assert (found.eager.reads, found.stock.reads, found.mended.reads) == (2, 2, 0)
    assert found.verdict == "mended: one graph instead of 3"


def test_all_sides_take_turns_alike_after_their_first_calls(measured):
    found = measured[0]
    sides = found.eager, found.stock, found.mended
    assert found.is_complete and {each.later.turns for each in sides} <= {*range(5, 26)}
    assert len({each.later.turns for each in sides}) == 1
    for each in sides:
        assert each.first_cold > each.later.median > 0 and each.first_warm > 0
        assert each.later.low <= each.later.median <= each.later.high
    if os.path.exists("/proc/self/clear_refs"):
        assert all(each.peak_bytes > 2**20 for each in sides)
    assert found.threads == 1 and found.is_copied and found.device == "cpu"


def test_nothing_of_the_caller_s_is_changed(measured):
    _, model, x = measured
    assert model.calls == 0 and torch.equal(x, torch.ones(3)) and model.weight.grad is None
    assert not bcmend.api.is_patched(model)


def test_training_goes_back_from_the_sum_of_all_results():
    model = Twice().eval()
    found = bcmend.bench(model, torch.ones(3), backend="eager", train=True, seconds=BRIEF)
    assert found.train and found.raised == found.mended.raised == ""
    assert found.mended.graphs == 1 and not model.training and model.weight.grad is None
    assert "forward and backward" in str(found)


def test_a_gradient_of_each_call_is_its_own():
    from bcmend.trials.calls import Caller

    model = Twice()
    caller = Caller(apart.TriedCall(model, (torch.ones(3),), {}), trains=True)
    for _ in range(2):
        caller.call(model)
        assert torch.equal(model.weight.grad, torch.full((3,), 2.0))


def test_a_side_that_raises_leaves_the_others(monkeypatch):
    compiled = side_calls.compiled

    def failing(obj, backend, *, is_mended):
        return obj.fail if is_mended else compiled(obj, backend, is_mended=False)

    monkeypatch.setattr(side_calls, "compiled", failing)  # copies of the process have it too
    found = bcmend.bench(Twice(), torch.ones(3), backend="eager", seconds=BRIEF)
    assert found.mended.raised == "ValueError: never" and found.mended.later is None
    assert found.raised == found.eager.raised == found.stock.raised == ""
    assert found.stock.graphs == 3 and found.stock.later.turns == found.eager.later.turns >= 5
    assert found.verdict == "mended: the call raises ValueError: never"


class _Fake:
    """A process of a side that is none: answers what it is told to, until it is interrupted."""

    def __init__(self, kind, turns):
        self.side, self.turns, self.is_closed = kind.side, turns, False

    def ask(self, name, *arguments):
        if name == "about":
            return side_calls.About("Fake", "cpu", 1, False)
        if name == "counts":
            return side_calls.Counted(1, 0, 0)
        if name == "turn" and self.side == "mended":
            if not self.turns:
                raise KeyboardInterrupt
            self.turns.pop()
        return side_calls.Took((2.0, 1.0, 3.0), "")

    def close(self):
        self.is_closed = True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _faked(monkeypatch, turns):
    started = []

    def start(subject, make):
        started.append(_Fake(make.args[0], turns))
        return started[-1]

    monkeypatch.setattr(benching, "copied_worker", start)
    monkeypatch.setattr(benching, "makes_copies", lambda **_: True)
    return started


@pytest.mark.parametrize("turns", [0, 2])
def test_ctrl_c_gives_what_was_measured(monkeypatch, turns):
    started = _faked(monkeypatch, [None] * turns)
    found = bcmend.bench(Twice(), torch.ones(3), seconds=1000)
    assert not found.is_complete and "interrupted" in str(found)
    assert found.eager.later.turns == turns + 1 and found.eager.later.median == 2.0
    assert (found.mended.later is None) == (turns == 0)
    assert found.mended.first_cold == 2.0
    assert len(started) == 6 and all(each.is_closed for each in started)


def test_turns_end_with_the_time(monkeypatch):
    clock = iter(range(10_000))
    monkeypatch.setattr(benching.time, "monotonic", lambda: float(next(clock)))
    _faked(monkeypatch, [None] * 100)
    assert bcmend.bench(Twice(), torch.ones(3), seconds=1).mended.later.turns == 5
    assert bcmend.bench(Twice(), torch.ones(3), seconds=9000).mended.later.turns == 25


@pytest.mark.parametrize(
    "obj, given, kind, expected",
    [
        (3, {}, UnsupportedObject, "cannot patch an object of type int"),
        (Twice(), {}, CallError, "missing a required argument: 'x'"),
        (Twice(), {"x": 1, "backend": "none"}, CallError, "no back end 'none'"),
        (Twice(), {"x": 1, "seconds": 0}, CallError, "positive number of seconds, got 0"),
    ],
)
def test_wrong_input_is_an_error_that_says_what_to_do(obj, given, kind, expected):
    with pytest.raises(kind, match=expected):
        bcmend.bench(obj, **given)


# The processes


def _made():
    return Twice(), (torch.ones(3),), {}


class _Answering:
    def double(self, value):
        return value * 2

    def fail(self):
        raise KeyError("a key")

    def wrong(self):
        raise CallError("as it is")

    def end(self):
        os._exit(3)

    def write(self):
        print("lost")
        return os.getpid()


@pytest.fixture(params=["copy", "new"])
def worker(request):
    if request.param == "new":
        found = workers.new_worker(_Answering, {})
    elif apart.makes_copies():
        found = workers.copied_worker(apart.TriedCall(None, (), {}), _Answering)
    else:
        pytest.skip("the process cannot be copied here")
    with found:
        yield found


def test_a_process_answers_until_it_ends(worker, capfd):
    assert worker.ask("double", 21) == 42
    with pytest.raises(TrialError, match="KeyError: 'a key'"):
        worker.ask("fail")
    with pytest.raises(CallError, match="as it is"):
        worker.ask("wrong")
    process = worker.ask("write")
    assert process != os.getpid() and capfd.readouterr() == ("", "")
    os.kill(process, signal.SIGINT)  # Ctrl-C is for the process that asks
    assert worker.ask("double", [1]) == [1, 1]
    with pytest.raises(workers.WorkerEnded, match="status 3"):
        worker.ask("end")


def test_a_process_is_gone_once_it_is_closed(worker):
    process = worker.ask("write")
    worker.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


@pytest.mark.slow
def test_new_processes_measure_what_they_make():
    found = benching.bench_made(_made, train=False, backend="eager", seconds=BRIEF)
    assert not found.is_copied and found.subject == "Twice" and found.raised == ""
    assert (found.stock.graphs, found.mended.graphs) == (3, 1)


class _OnlyHere:
    def __reduce__(self):
        return _require_process, (os.getpid(),)


def _require_process(process):
    if os.getpid() != process:
        raise KeyError("not here")


def test_what_cannot_be_had_in_a_new_process_is_an_error(monkeypatch):
    monkeypatch.setattr(benching, "makes_copies", lambda **_: False)
    with pytest.raises(TrialError, match="KeyError: 'not here'; have their classes in a module"):
        bcmend.bench(Twice(), _OnlyHere())


def test_what_cannot_be_sent_to_a_new_process_is_an_error(monkeypatch):
    monkeypatch.setattr(benching, "makes_copies", lambda **_: False)
    with pytest.raises(TrialError, match="use the command line"):
        bcmend.bench(programs.Uncopyable(), torch.ones(2, 4))
    with bcmend.patched(Twice()), pytest.raises(TrialError, match="something is patched"):
        bcmend.bench(programs.Layer(), torch.ones(2, 4))


# Calls of a side


def test_each_way_to_read_a_number_is_counted():
    def reading(x):
        if x.sum() > 0:
            x = x * x.max().item()
        return x * len(x.tolist()) + int(x[0])

    caller = calls.Caller(apart.TriedCall(reading, (torch.ones(3),), {}))
    assert calls.reads_in_eager(caller) == 4
    caller = calls.Caller(apart.TriedCall(torch.neg, (torch.ones(3),), {}))
    assert calls.reads_in_eager(caller) == 0


def test_gradients_are_recorded_in_training_alone(monkeypatch, tmp_path):
    seen = []

    def noting(x):
        seen.append(torch.is_grad_enabled())
        return x * 2

    subject = apart.TriedCall(noting, (torch.ones(3, requires_grad=True),), {})
    for trains in (False, True):
        kind = side_calls.Kind("eager", "eager", trains, str(tmp_path))
        for name, value in kind.environment().items():
            monkeypatch.setenv(name, value)  # so that it is put back
        side_calls.SideCalls(kind, subject).first()
    assert seen == [False, True]


def test_back_ends_for_looking_for_faults_only_trace():
    found = {name: only_traces(name) for name in ("eager", "aot_eager", "inductor")}
    assert found == {"eager": True, "aot_eager": True, "inductor": False}

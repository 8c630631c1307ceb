"""What all tests share: strict mode, no limits of time, nothing that an earlier test has left."""

from __future__ import annotations

import gc
import logging
import os
import sys
import traceback
from collections.abc import Iterator

os.environ.setdefault("BCMEND_STRICT", "1")
# Tensors are small: more threads than one wait for each other, here and in processes of tests.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Each process with inductor would try out, in six others, whether the compiler can do what the
# processor can.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")

import hypothesis
import pytest

from tests.registrations import registrations_undone

pytest_plugins = ["tests.sampling"]

# How long an example takes says how busy the machine is.
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")


@pytest.fixture(autouse=True)
def _registrations_are_undone() -> Iterator[None]:
    with registrations_undone():
        yield


@pytest.fixture(autouse=True)
def _blocks_are_left() -> Iterator[None]:
    """Fail the test that leaves a block of torch's open, not those behind it that meet it."""
    yield
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "_C"):
        return
    left = []
    while torch._C._functorch.peek_interpreter_stack() is not None:
        torch._C._functorch.pop_dynamic_layer_stack()
        left.append("a level of torch.func")
    if not torch._C._autograd._saved_tensors_hooks_is_enabled():
        torch._C._autograd._saved_tensors_hooks_enable()
        left.append("disabled hooks of saved tensors")
    if not torch.is_grad_enabled():
        torch.set_grad_enabled(True)
        left.append("disabled gradients")
    assert not left


@pytest.fixture(scope="module", autouse=True)
def _what_others_have_left_is_not_looked_at() -> None:
    """Have collections pass over what modules before this one have left in caches of torch's.

    There are millions of objects of that kind at the end: a collection takes three seconds.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _traces_are_not_interrupted() -> None:
    """Collect less often: a trace makes a hundred thousand objects that stay until its end."""
    gc.set_threshold(100_000, 20, 100)


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_measured_for_logs() -> Iterator[None]:
    """Have torch leave out what it does for its own logs, a sixth of the time of all tests.

    A compilation times its guards and makes a record of itself. Pytest listens to loggers that do
    not propagate, and to whoever listens to this one torch describes all that it does. Where a
    trace stops, it decodes the places of all instructions of pytest's sixty frames.
    """
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "_C"):
        yield
        return
    from torch._dynamo import exc, guards, utils

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guards, "profile_guard_manager", lambda manager, scope, rounds: 0.0)
        patch.setattr(utils, "record_compilation_metrics", lambda *_: None)
        trace_log = logging.getLogger("torch.__trace")
        patch.setattr(exc, "_extract_stack_with_positions", _stack_above, raising=False)
        if hasattr(torch._dynamo.config, "run_gc_after_compile"):
            patch.setattr(torch._dynamo.config, "run_gc_after_compile", False)
        patch.setattr(trace_log, "handlers", [])
        patch.setattr(trace_log, "addHandler", lambda handler: None)
        yield


def _stack_above() -> traceback.StackSummary:
    """Return the frames around the caller's, without the columns of those that are pytest's."""
    return traceback.StackSummary.from_list(
        [
            traceback.FrameSummary(
                frame.f_code.co_filename, line, frame.f_code.co_name, lookup_line=False
            )
            for frame, line in traceback.walk_stack(sys._getframe(1))
        ][::-1]
    )


@pytest.fixture
def dynamo_begun_anew() -> Iterator[None]:
    """Have a test find nothing compiled, and leave nothing compiled or patched."""
    import torch

    import bcmend

    torch._dynamo.reset()
    yield
    bcmend.unpatch()
    torch._dynamo.reset()


@pytest.fixture
def mended_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have objects patched with no policy be mended at once, for tests that look at their code."""
    from bcmend import Policy, api

    monkeypatch.setattr(api, "DEFAULT", Policy(mend="ahead"))

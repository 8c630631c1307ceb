"""Serving: threads, lengths that change, workers and processes, generation of text."""

from __future__ import annotations

import gc
import multiprocessing
import random
import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import bcmend
from tests.works_with.small import LOG, Graphs, Small, inputs, logged, shown

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


class Answering(nn.Module):
    """Answers a request, and logs it by its number."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor, request: Tensor) -> Tensor:
        h = self.linear(x)
        if h.isnan().any():
            raise ValueError("not a number")
        if x.sum() > 0:
            h = h.tanh()
        else:
            h = h.sin() * 2
        LOG.warning("request %d: %.4f", request.item(), h.sum().item())
        return h


def _request(number: int) -> tuple[Tensor, Tensor]:
    draw = random.Random(number)
    x = torch.full((draw.randrange(2, 40), 4), draw.random() - 0.5)
    return (x * torch.nan if number % 10 == 7 else x), torch.tensor(number)


def _serve(call: Any, numbers: range, threads: int = 8) -> dict[int, Any]:
    """Return the answer of each request, of as many threads."""
    answers: dict[int, Any] = {}
    waiting = list(numbers)
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                if not waiting:
                    return
                number = waiting.pop()
            try:
                with torch.no_grad():
                    answers[number] = call(*_request(number))
            except ValueError as error:
                answers[number] = str(error)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return answers


def _served(patch: Any, numbers: range) -> tuple[dict[int, Any], list[str], int]:
    bcmend.unpatch()
    torch._dynamo.reset()
    graphs = Graphs()
    compiled = torch.compile(patch(Answering()), backend=graphs)
    with logged() as texts, torch.no_grad():
        for number in (0, 1):  # the second length makes it dynamic
            compiled(*_request(number))
        texts.clear()
        answers = _serve(compiled, numbers)
    return answers, sorted(texts), graphs.count


def test_a_serving_loop() -> None:
    numbers = range(300)
    with logged() as texts:
        expected = _serve(Answering(), numbers)
    counts = []
    for patch in (lambda each: each, bcmend.patch):
        answers, log, count = _served(patch, numbers)
        assert answers.keys() == expected.keys()
        for number, answer in expected.items():
            if isinstance(answer, str):
                assert answers[number] == answer
            else:
                torch.testing.assert_close(answers[number], answer)
        assert len(log) == len(texts) == sum(number % 10 != 7 for number in numbers)
        assert {each.partition(":")[0] for each in log} == {
            each.partition(":")[0] for each in texts
        }
        counts.append(count)
    stock, mended = counts
    assert mended < stock


def test_a_serving_loop_keeps_nothing() -> None:
    compiled = torch.compile(bcmend.patch(Answering()), backend="eager")
    counts = []
    with logged() as texts, torch.no_grad():
        for _ in range(4):
            _serve(compiled, range(100))
            texts.clear()
            gc.collect()
            counts.append(sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects()))
    assert counts[-1] == counts[1]


class Rows(Dataset[Tensor]):
    """Has a mended model compute its rows."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def __len__(self) -> int:
        return 4

    def __getitem__(self, place: int) -> Tensor:
        with torch.no_grad():
            found: Tensor = self.model(inputs()[place % 2])
        return found


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_of_a_loader(context: str) -> None:
    if context not in multiprocessing.get_all_start_methods():
        pytest.skip(f"there is no {context} here")
    expected = torch.stack([Small()(inputs()[place % 2]) for place in range(4)])
    model = bcmend.patch(Small())
    loader = DataLoader(Rows(model), batch_size=4, num_workers=1, multiprocessing_context=context)
    (found,) = loader
    torch.testing.assert_close(found, expected.detach())


def _in_a_child(queue: Any, model: Any, is_patched: bool) -> None:
    graphs = Graphs()
    if is_patched:
        bcmend.patch(model)
    torch.set_num_threads(1)
    compiled = torch.compile(model, backend=graphs)
    found = [shown(lambda: compiled(x).tolist()) for x in inputs()]  # noqa: B023
    queue.put((found, graphs.count))


@pytest.mark.parametrize(("method", "is_patched"), [("fork", False), ("spawn", True)])
def test_processes(method: str, is_patched: bool) -> None:
    """A forked process has what its parent has patched; a spawned one patches what it compiles."""
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"there is no {method} here")
    context: Any = multiprocessing.get_context(method)
    model = bcmend.patch(Small())
    queue = context.Queue()
    child = context.Process(target=_in_a_child, args=(queue, model, is_patched))
    child.start()
    found, count = queue.get(timeout=120)
    child.join()
    assert found == [shown(lambda: Small()(x).tolist()) for x in inputs()]  # noqa: B023
    assert count == 1


def _speaker(implementation: str | None) -> Any:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=64,
        pad_token_id=0,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    model.generation_config.cache_implementation = implementation
    inner = model.model.layers[0].mlp.forward

    def checked(x: Tensor) -> Tensor:
        if x.isnan().any():
            raise ValueError("not a number")
        found: Tensor = inner(x)
        if found.sum() > 0:
            found = found * 2
        LOG.warning("largest %.3f", found.max().item())
        return found

    model.model.layers[0].mlp.forward = checked
    return model


@pytest.mark.parametrize("implementation", [pytest.param(None, marks=pytest.mark.slow), "static"])
def test_generation(implementation: str | None) -> None:
    ids = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])

    def spoken(model: Any) -> Any:
        with torch.no_grad(), logged() as texts:
            given = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 6}
            return model.generate(ids, do_sample=False, **given).tolist(), list(texts)

    expected = spoken(_speaker(implementation))
    counts = []
    for patch in (lambda each: each, bcmend.patch):
        torch._dynamo.reset()
        model, graphs = patch(_speaker(implementation)), Graphs()
        model.forward = torch.compile(model.forward, backend=graphs)
        assert spoken(model) == expected
        counts.append(graphs.count)
    stock, mended = counts
    assert stock > mended


def test_gradient_checkpointing_of_transformers() -> None:
    ids = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])

    def gradients(model: Any, call: Any) -> list[Tensor]:
        call(input_ids=ids, labels=ids).loss.backward()
        return [each.grad for each in model.parameters()]

    def speaker() -> Any:
        model = _speaker(None).train()
        model.gradient_checkpointing_enable({"use_reentrant": False})
        return model

    expected = gradients(reference := speaker(), reference)
    model = bcmend.patch(speaker())
    found = gradients(model, torch.compile(model, backend="aot_eager"))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)

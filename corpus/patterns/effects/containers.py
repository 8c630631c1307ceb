"""Arms that change a list, a dictionary or a queue."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from corpus.patterns.pattern import (
    CHOICE,
    COND,
    NO_MERGE,
    SPLIT,
    WHERE,
    pattern,
    patterns_among,
    rows,
    signs,
)
from tests.equivalence import Call, call

Program = Callable[..., Any]


def _list_and_vector() -> list[Call]:
    one = torch.tensor([1.0, 2.0])
    return [call([one, one * 2], one.clone()), call([one, one * 2], -one)]


@pattern(_list_and_vector, WHERE, training=False)
def item_of_a_list_argument() -> Program:
    def program(items: list[Tensor], x: Tensor) -> Tensor:
        if x.sum() > 0:
            items[0] = x * 2
        else:
            items[1] = x - 1
        return items[0] + items[1]

    return program


@pattern(signs, WHERE)
def item_of_a_list_attribute() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.history = [torch.zeros(3), torch.ones(3)]

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                self.history[0] = x.detach() * 2
            else:
                self.history[1] = x.detach() - 1
            return self.history[0] * x + self.history[1]

    return Net()


@pattern(signs, WHERE)
def item_of_a_local_list() -> Program:
    def program(x: Tensor) -> list[Tensor]:
        items = [x + 1, x + 2]
        if x.sum() > 0:
            items[0] = x * 2
        else:
            items[1] = x - 1
        return items

    return program


@pattern(signs, WHERE)
def list_that_each_arm_changes_and_returns() -> Program:
    def program(x: Tensor) -> list[Tensor]:
        items = [x + 1, x + 2]
        if x.sum() > 0:
            items[0] = x * 2
            return items
        items[1] = x - 1
        return items

    return program


@pattern(signs, WHERE)
def list_that_one_arm_fills_and_both_return() -> Program:
    def program(x: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        items = [x + 1]
        same = items
        if x.sum() > 0:
            items.append(x * 2)
            return items, same
        items[0] = x - 1
        return items, same

    return program


def _dict_and_vector() -> list[Call]:
    one = torch.tensor([1.0, 2.0])
    return [call({"a": one, "b": one * 2}, one.clone()), call({"a": one, "b": one * 2}, -one)]


@pattern(_dict_and_vector, WHERE, training=False)
def item_of_a_dictionary_argument() -> Program:
    def program(items: dict[str, Tensor], x: Tensor) -> Tensor:
        if x.sum() > 0:
            items["a"] = x * 2
            items["new"] = x
        else:
            items["new"] = x + 1
        return items["a"] + items["new"]

    return program


@pattern(signs, WHERE)
def local_list_appended_in_both_arms() -> Program:
    def program(x: Tensor) -> list[Tensor]:
        items = [x + 1]
        if x.sum() > 0:
            items.append(x * 2)
        else:
            items.append(x - 1)
        return items

    return program


@pattern(signs, WHERE)
def list_appended_in_one_arm() -> Program:
    def program(x: Tensor) -> list[Tensor]:
        items = [x + 1]
        if x.sum() > 0:
            items.append(x * 2)
        items.append(x)
        return items

    return program


@pattern(signs, CHOICE)
def detections_above_a_threshold() -> Program:
    def program(x: Tensor) -> dict[str, Any]:
        boxes, scores = [], []
        for score in x:
            if score > 0.6:
                boxes.append(torch.stack([score, score * 2]))
                scores.append(score + 0)
        if not boxes:
            return {"count": 0}
        return {"boxes": torch.stack(boxes), "scores": torch.stack(scores)}

    return program


@pattern(signs, WHERE)
def optional_terms_of_a_loss() -> Program:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
            y = self.layer(x)
            losses = {"main": y.pow(2).mean()}
            if x.min() < 0:
                losses["penalty"] = y.abs().mean()
            if x.sum() > 0:
                losses["auxiliary"] = y.mean()
            return y, losses

    return Net()


@pattern(signs, WHERE)
def terms_of_a_loss_added_up() -> Program:
    def program(x: Tensor) -> Tensor:
        losses = [x.pow(2).mean()]
        if x.sum() > 0:
            losses.append(x.mean())
        return sum(losses)

    return program


@pattern(signs, SPLIT)
def items_sorted_into_two_lists() -> Program:
    def program(x: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        positive, other = [], []
        for each in x[:2]:
            (positive if each > 0 else other).append(each * 2)
        return positive, other

    return program


@pattern(signs, WHERE)
def window_of_a_queue() -> Program:
    def program(x: Tensor) -> deque[Tensor]:
        last = deque([x * 1, x * 2], maxlen=2)
        if x.sum() > 0:
            last.append(x * 3)
        last.appendleft(x * 4)
        return last

    return program


@dataclass
class Event:
    """Something worth noting."""

    name: str
    value: Tensor


@pattern(signs, WHERE)
def events_noted_as_objects() -> Program:
    def program(x: Tensor) -> list[Event]:
        events = []
        if x.sum() > 0:
            events.append(Event("positive", x.mean()))
        if x.min() < -3:
            events.append(Event("low", x.min()))
        events.append(Event("end", x * 1))
        return events

    return program


@pattern(signs, WHERE)
def message_collected_in_a_list_that_is_returned() -> Program:
    def program(x: Tensor) -> Any:
        problems = []
        if x.sum() < 0:
            problems.append(f"negative sum {x.sum().item():.2f}")
        return x * 2, problems

    return program


@pattern(signs, WHERE)
def terms_gathered_in_a_list() -> Program:
    def program(x: Tensor) -> Tensor:
        terms = [x.mean()]
        if x.max() > 2:
            terms.append(x.max() * 0.1)
        if x.min() < -2:
            terms.append(x.min().square())
        return torch.stack(terms).sum() / len(terms)

    return program


@pattern(signs, SPLIT)
def options_gathered_in_a_dictionary() -> Program:
    def program(x: Tensor) -> Tensor:
        options: dict[str, float] = {"max": 2.0}
        if x.min() < -2:
            options["min"] = -1.0
        return torch.clamp(x, **options)

    return program


@pattern(rows, CHOICE)
def rows_kept_in_a_list() -> Program:
    def program(x: Tensor) -> Tensor:
        kept = []
        for row in x - x.mean():
            if row.sum() > 0:
                kept.append(row)
        return torch.stack(kept) if kept else x.new_zeros(0, 4)

    return program


def _logs() -> list[Call]:
    return [call(torch.tensor(each), []) for each in ([1.0, 2.0], [-1.0, -2.0])]


@pattern(_logs, WHERE)
def history_of_the_caller_appended_to() -> Program:
    def program(x: Tensor, history: list[Tensor]) -> Tensor:
        if x.sum() > 0:
            history.append(x.detach() * 1)
        return x * 2

    return program


@pattern(_logs, WHERE)
def history_of_the_caller_appended_to_in_both_arms() -> Program:
    def program(x: Tensor, history: list[Tensor]) -> Tensor:
        if x.sum() > 0:
            history.append(x.detach() * 2)
        else:
            history.append(x.detach() - 1)
        return history[-1] + x

    return program


def _tables() -> list[Call]:
    tables = [{"last": torch.zeros(2), "best": torch.ones(2)} for _ in range(2)]
    vectors = ([1.0, 2.0], [-1.0, -2.0])
    return [call(torch.tensor(x), table) for x, table in zip(vectors, tables, strict=True)]


@pattern(_tables, WHERE, training=False)
def statistics_kept_in_a_dictionary() -> Program:
    def program(x: Tensor, stats: dict[str, Tensor]) -> Tensor:
        stats["last"] = x * 1
        if x.sum() > stats["best"].sum():
            stats["best"] = x * 1
        return x - stats["best"]

    return program


@pattern(_tables, SPLIT, training=False)
def key_added_in_one_arm_and_looked_for() -> Program:
    def program(x: Tensor, stats: dict[str, Tensor]) -> Tensor:
        if x.min() < 0:
            stats["negative"] = x.min()
        if "negative" in stats:
            x = x - stats["negative"]
        return x * 2

    return program


@pattern(_tables, SPLIT, training=False)
def key_removed_in_one_arm() -> Program:
    def program(x: Tensor, stats: dict[str, Tensor]) -> Tensor:
        if x.sum() > 0:
            stats.pop("best")
        return x * 2 + len(stats)

    return program


class Slot:
    """What one layer keeps; empty until the layer is called."""

    def __init__(self) -> None:
        self.is_ready = False

    def update(self, value: Tensor) -> Tensor:
        if not self.is_ready:
            self.dtype = value.dtype
            self.kept = value.new_zeros(0, value.shape[-1])
            self.is_ready = True
        self.kept = torch.cat([self.kept, value])
        return self.kept


class Cache:
    """A slot for each layer, and which of them were used."""

    def __init__(self, layers: int) -> None:
        self.slots = [Slot() for _ in range(layers)]
        self.used = dict.fromkeys(range(layers), False)


class _Layer(nn.Module):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor, cache: Cache) -> Tensor:
        kept = cache.slots[self.number].update(self.linear(x))
        if not cache.used.get(self.number):
            cache.used[self.number] = True
        return x + kept.mean(0).to(x.dtype)


class _Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Layer(number) for number in range(3))

    def forward(self, x: Tensor) -> tuple[Tensor, Cache]:
        x, cache = x * 1, Cache(3)
        for layer in self.layers:
            if torch.rand([]) < 0.5:
                continue
            x = layer(x, cache)
        return x, cache


@pattern(rows, COND, may_copy=True, zero_gradients=True)
def layer_drop_beside_a_cache() -> Any:
    return _Stack()


@pattern(rows, SPLIT, may_copy=True, zero_gradients=True)
def a_cache_that_is_looked_at_behind_the_layers() -> Any:
    class Net(_Stack):
        def forward(self, x: Tensor) -> Any:
            cache = Cache(1)
            if x.sum() > 0:
                x = self.layers[0](x, cache)
            slot = cache.slots[0]
            return x * 2 if hasattr(slot, "kept") else x - 1

    return Net()


@pattern(signs, NO_MERGE)
def a_table_with_one_entry_that_depends_on_data() -> Program:
    def program(x: Tensor) -> tuple[Any, ...]:
        table = {"a": 1, "b": 2}
        if x.sum() > 0:
            table["a"] = 3
            table["c"] = 4
        return x * table["b"], "b" in table, table.get("z", 7), table

    return program


@pattern(signs, NO_MERGE)
def a_table_with_one_entry_that_is_read_again() -> Program:
    def program(x: Tensor) -> tuple[Any, ...]:
        table = {"a": 1, "b": 2}
        if x.sum() > 0:
            table["a"] = 3
        return x * table["a"], table

    return program


PATTERNS = patterns_among(list(vars().values()))

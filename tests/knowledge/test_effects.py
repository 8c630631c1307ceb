"""The table of effects: each fact, for operators, functions of torch and methods of tensors."""

from __future__ import annotations

import gc
import operator
import re
import weakref
from dataclasses import fields
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch._higher_order_ops.triton_kernel_wrap import triton_kernel_wrapper_mutation
from torch.nn import functional

from bcmend.knowledge import effects
from bcmend.knowledge.effects import UNKNOWN, EffectFacts, Switch

ATEN: Any = torch.ops.aten

#: For each fact, what has it and what has not.
FACTS: dict[str, tuple[list[Any], list[Any]]] = {
    "is_random": (
        [
            ATEN.rand.default,
            ATEN.bernoulli_,
            torch.rand,
            torch.randn_like,
            "normal_",
            "bernoulli",
            ATEN.native_dropout.default,
            functional.dropout,
            functional.gumbel_softmax,
            functional.fractional_max_pool2d,
            functional.fractional_max_pool3d_with_indices,
            functional.multi_head_attention_forward,
            torch.svd_lowrank,
            torch.pca_lowrank,
            torch.normal,
            torch.binomial,
            torch.ops.rngprims.philox_rand.default,
            torch.seed,
            torch.get_rng_state,
            torch.random.fork_rng,
        ],
        [
            ATEN.add.Tensor,
            torch.sin,
            "add_",
            ATEN.empty.memory_format,
            functional.relu,
            functional.max_pool2d,
            torch.einsum,
        ],
    ),
    "switch": (
        [functional.dropout, functional.rrelu, ATEN.native_dropout.default, torch.dropout],
        [ATEN.rand.default, torch.sin, functional.gumbel_softmax],
    ),
    "is_total": (
        [ATEN.sum.default, ATEN.mm.default, torch.cat, "softmax", ATEN.where.self, "zero_"],
        [ATEN.index.Tensor, ATEN.gather.default, ATEN.linalg_inv.default, "item"],
    ),
    "is_partial": (
        [functional.one_hot, ATEN.one_hot.default],
        [functional.relu, torch.add, ATEN.index.Tensor],
    ),
    "divides": (
        [ATEN.div.Tensor, torch.floor_divide, "remainder", "div_", torch.fmod],
        [ATEN.mul.Tensor, torch.add, "reciprocal"],
    ),
    "is_expensive": (
        [ATEN.mm.default, torch.matmul, "sort", ATEN.convolution.default, torch.topk, torch.lstm],
        [ATEN.add.Tensor, "sum", torch.relu],
    ),
    "statistics": (
        [
            functional.batch_norm,
            functional.instance_norm,
            ATEN.native_batch_norm.default,
            torch.batch_norm,
            torch.instance_norm,
        ],
        [functional.layer_norm, ATEN.native_layer_norm.default],
    ),
    "writes": (
        [
            "add_",
            "__iadd__",
            "__setitem__",
            "requires_grad_",
            operator.iadd,
            operator.setitem,
            torch.relu_,
            torch._foreach_add_,
            ATEN.add_.Tensor,
            ATEN.add.out,
            ATEN._native_batch_norm_legit.default,
            ATEN.multi_margin_loss_backward.grad_input,
            functional.relu,
            functional.embedding,
        ],
        [
            "add",
            "__add__",
            "sort",
            operator.add,
            operator.getitem,
            torch.add,
            torch.sort,
            ATEN.add.Tensor,
            functional.softmax,
        ],
    ),
    "writing": (
        [functional.relu, functional.dropout, functional.embedding, functional.rrelu],
        ["add_", functional.softmax],
    ),
    "replaces_storage": (
        ["set_", "resize_", "resize_as_", ATEN.set_.source_Tensor, torch.utils.swap_tensors],
        ["copy_", "reshape", ATEN.resize.default],
    ),
    "is_collective": (
        [
            torch.ops._c10d_functional.all_reduce.default,
            torch.ops.c10d.allreduce_.default,
            torch.distributed.all_reduce,
        ],
        [ATEN.add.Tensor, torch.add, functional.linear],
    ),
    "sets_default": ([torch.set_default_dtype, torch.set_default_device], [torch.set_num_threads]),
    "reads_on_host": (
        ["item", "nonzero", torch.unique_consecutive, ATEN._local_scalar_dense.default],
        ["sum", torch.add, ATEN.select.int],
    ),
    "draws_on_host": ([], [torch.rand, ATEN.rand.default, functional.dropout]),
    "handles_generator": (
        [torch.manual_seed, torch.seed, torch.get_rng_state, torch.set_rng_state, ATEN.seed],
        [torch.rand, functional.dropout],
    ),
    "has_hidden_state": (
        [
            *(torch.ops.higher_order.flat_apply, triton_kernel_wrapper_mutation, print, open),
            torch.ops.profiler._record_function_exit,
        ],
        [
            *(torch.ops.higher_order.cond, torch.ops.prims.sin.default, ATEN.add, torch.add),
            *(
                functional.relu,
                torch.einsum,
                operator.add,
                len,
                abs,
                getattr,
                torch.sym_max,
                "add_",
            ),
        ],
    ),
    "is_recurrent": ([torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu], [torch.matmul]),
    "is_composite": (
        [functional.relu, torch.einsum, functional.fractional_max_pool2d, "split"],
        [torch.add, functional.dropout, ATEN.add.Tensor, "add"],
    ),
}


def test_every_fact_is_tested() -> None:
    assert [each.name for each in fields(EffectFacts)] == list(FACTS)


@pytest.mark.parametrize("fact", FACTS)
def test_a_fact_holds_of_what_has_it_and_of_nothing_else(fact: str) -> None:
    having, others = FACTS[fact]
    for target in having:
        assert getattr(effects.facts_of_target(target), fact), target
    for target in others:
        assert not getattr(effects.facts_of_target(target), fact), target


def test_an_operator_that_is_declared_has_those_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "_LASTING", dict(effects._LASTING))

    def operator() -> None: ...

    assert effects.facts_of_target(operator) is UNKNOWN
    facts = EffectFacts(is_random=True, draws_on_host=True)
    effects.declare(operator, facts)
    assert effects.facts_of_target(operator) is facts


class _Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def _made_now() -> list[Any]:
    """Return a function, a function with equal code, a class, and what holds a model."""

    def function() -> None: ...

    model = _Model()
    return [function, type("Kernel", (), {}), model, model.forward, model.__class__.forward]


@pytest.mark.parametrize("at", range(4))
def test_the_table_keeps_nothing_of_a_program_alive(at: int) -> None:
    target = _made_now()[at]
    reference = weakref.ref(getattr(target, "__self__", target))
    assert effects.facts_of_target(target) is UNKNOWN and effects.facts_of_target(target) is UNKNOWN
    del target
    gc.collect()
    assert reference() is None


def test_facts_of_an_object_are_not_those_of_an_equal_one() -> None:
    class Equal:
        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return hash(torch.sin)

    assert not effects.facts_of_target(torch.sin).has_hidden_state
    assert effects.facts_of_target(Equal()) is UNKNOWN


def test_an_operator_of_a_program_goes_with_it() -> None:
    with torch.library._scoped_library("bcmend_tests", "DEF") as library:
        library.define("gone(Tensor x) -> Tensor")
        target = torch.ops.bcmend_tests.gone.default
        assert effects.facts_of_target(target).has_hidden_state and target in effects._KNOWN
    before = len(effects._KNOWN)
    delattr(torch.ops, "bcmend_tests")
    del target
    gc.collect()
    assert len(effects._KNOWN) < before


@pytest.mark.parametrize("target", [torch.sin, torch.Tensor.sin, "sin", ATEN.sin, functional.relu])
def test_what_is_known_is_found_out_once(target: Any) -> None:
    assert effects.facts_of_target(target) is effects.facts_of_target(target) is not UNKNOWN


def test_of_unknown_names_and_functions_everything_is_to_be_feared() -> None:
    def relu(x: object) -> object:
        return x

    for unknown in ("no_such_method", relu, print, SimpleNamespace(), re.compile("").match):
        facts = effects.facts_of_target(unknown)
        assert facts.draws((), {}) and facts.changes((), {})
        assert facts.has_hidden_state and facts.draws_on_host and not facts.is_total


class _Sorted(NamedTuple):
    values: torch.Tensor
    indices: torch.Tensor


class _Counted(_Sorted):
    def __new__(cls, *items: torch.Tensor) -> _Counted:
        _MADE.append(items)
        return super().__new__(cls, *items)


_MADE: list[Any] = []


def test_a_named_tuple_merely_holds_what_it_is_made_of() -> None:
    assert effects.facts_of_target(_Sorted) == EffectFacts()
    assert effects.facts_of_target(_Counted) is UNKNOWN


@pytest.mark.parametrize("target", [torch.Size, tuple, slice, torch.dtype])
def test_a_class_in_c_has_facts_although_no_module_has_its_constructor(target: type) -> None:
    assert target.__new__.__module__ is None
    assert effects.facts_of_target(target) == EffectFacts()


def test_what_a_call_of_a_function_changes_follows_from_its_arguments() -> None:
    for target, arguments, keywords, expected in (
        (functional.relu, (1,), {}, False),
        (functional.relu, (1, True), {}, True),
        (functional.relu, (1,), {"inplace": True}, True),
        (functional.dropout, (1, 0.5, True, True), {}, True),
        (functional.embedding, (1, 2), {}, False),
        (functional.embedding, (1, 2, None, 0.5), {}, True),
        (torch.add, (1, 2), {}, False),
        (torch.add, (1, 2), {"out": 3}, True),
        ("add_", (1, 2), {}, True),
    ):
        assert effects.facts_of_target(target).changes(arguments, keywords) is expected, target


def test_functions_of_numpy_have_the_facts_of_what_torch_does_for_them() -> None:
    import torch._numpy as arrays
    from torch._dynamo.utils import (
        numpy_method_wrapper,
        numpy_operator_wrapper,
        numpy_to_tensor_wrapper,
    )

    assert effects.facts_of_target(numpy_to_tensor_wrapper(arrays.random.normal)).is_random
    for harmless in (
        numpy_to_tensor_wrapper(arrays.sum),
        numpy_method_wrapper("sum"),
        numpy_operator_wrapper(operator.add),
    ):
        facts = effects.facts_of_target(harmless)
        assert not (facts.is_random or facts.has_hidden_state), harmless
    assert effects.facts_of_target(numpy_operator_wrapper(operator.iadd)).writes


def test_an_overload_has_the_tags_of_its_own_and_its_operator_those_of_all() -> None:
    """``normal.Tensor_Tensor`` is random; the operator is as soon as one overload is."""
    assert effects.facts_of_target(ATEN.normal.Tensor_Tensor).is_random
    assert effects.facts_of_target(ATEN.normal).is_random


@pytest.mark.parametrize(
    ("target", "arguments", "keywords", "expected"),
    [
        (functional.dropout, (1, 0.5), {}, True),
        (functional.dropout, (1, 0.5, False), {}, False),
        (functional.dropout, (1,), {"training": False}, False),
        (functional.dropout, (1,), {"training": "unknown"}, True),
        (functional.alpha_dropout, (1, 0.5), {}, False),
        (functional.alpha_dropout, (1, 0.5, True), {}, True),
        (functional.rrelu, (1, 0.1, 0.3), {}, False),
        (functional.scaled_dot_product_attention, (1, 1, 1), {}, False),
        (functional.scaled_dot_product_attention, (1, 1, 1, None, 0.1), {}, True),
        (functional.scaled_dot_product_attention, (1, 1, 1), {"dropout_p": 0.0}, False),
        (torch.rand, (2,), {}, True),
        (torch.sin, (1,), {}, False),
    ],
)
def test_a_call_draws_unless_its_switch_is_off(
    target: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], expected: bool
) -> None:
    assert effects.facts_of_target(target).draws(arguments, keywords) is expected


def test_a_switch_is_off_only_where_that_is_known() -> None:
    switch = Switch(1, "train", True)
    assert switch.is_off((0, False), {}) and switch.is_off((0,), {"train": 0})
    assert not switch.is_off((0,), {}) and not switch.is_off((0, None), {})
    assert Switch(1, "train", False).is_off((0,), {})


def test_where_a_norm_is_given_its_statistics() -> None:
    for norm, first, training in (
        (functional.batch_norm, 1, 5),
        (torch.batch_norm, 3, 5),
        (functional.instance_norm, 1, 5),
    ):
        found = effects.facts_of_target(norm).statistics
        assert found is not None and found.first == first and found.switch.position == training
    by_input = effects.facts_of_target(torch.instance_norm).statistics
    assert by_input is not None and by_input.switch.default is True


def test_an_operator_is_found_behind_overloads_and_functions_written_in_c() -> None:
    assert effects.packet_of(ATEN.add.Tensor) is ATEN.add
    assert effects.packet_of(ATEN.add) is ATEN.add
    assert effects.packet_of(torch.add) is ATEN.add
    assert effects.packet_of(torch.Tensor.add_) is ATEN.add_
    assert effects.packet_of(functional.relu) is None
    assert effects.packet_of(torch.Tensor.__add__) is None


def test_every_function_of_torch_that_is_written_in_c_is_known() -> None:
    from torch import _C

    places = (_C._VariableFunctions, _C._nn, _C._fft, _C._linalg, _C._special, _C._sparse)
    found = [
        getattr(place, name) for place in places for name in dir(place) if not name.startswith("__")
    ]
    functions = [each for each in found if callable(each)]
    assert len(functions) > 1000
    assert [each for each in functions if effects.facts_of_target(each) is UNKNOWN] == []
    assert effects.facts_of_target(_C._VariableFunctions.unique_dim).reads_on_host
    methods = [getattr(torch.Tensor, name) for name in dir(torch.Tensor)]
    unknown = [
        each for each in methods if callable(each) and effects.facts_of_target(each) is UNKNOWN
    ]
    assert not [each for each in unknown if hasattr(each, "__objclass__")]


def test_every_function_of_torch_that_dynamo_puts_into_a_graph_is_known() -> None:
    from torch._dynamo.trace_rules import get_torch_obj_rule_map
    from torch._dynamo.variables import TorchInGraphFunctionVariable

    found = [
        each
        for each, kind in get_torch_obj_rule_map().items()
        if isinstance(kind, type) and issubclass(kind, TorchInGraphFunctionVariable)
    ]
    assert len(found) > 1000
    assert [each for each in found if effects.facts_of_target(each) is UNKNOWN] == []


@pytest.mark.parametrize("name", ["__round__", "is_integer", "bit_length"])
def test_a_method_of_numbers_has_no_state_but_may_fail(name: str) -> None:
    assert effects.facts_of_target(name) == EffectFacts()
    assert effects.facts_of_target(f"{name}_") is UNKNOWN

"""The table of calls that Dynamo cannot trace and for which something equal can be traced.

Each row names a callable, what stands in for a call of it, under which condition that is equal to
the call, and the test that proves it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Final

from bcmend.knowledge import item_groups


@dataclass(frozen=True, slots=True)
class Substitute:
    """What stands in for a call.

    Attributes:
        answer: a key of ``bcmend.tracing.substitutes.dispatch.ANSWERS``.
        becomes: what the call becomes, in words.
        condition: when that is equal to the call; elsewhere Dynamo traces the call itself.
        proof: the test that shows it.
        replacement: what is traced in place of the call, for rows of the user and Python in place
            of C.
        parts: the code of a replacement of bcmend's own.
    """

    name: str
    answer: str
    becomes: str = ""
    condition: str = ""
    proof: str = ""
    replacement: object = None
    parts: tuple[CodeType, ...] = ()


def _rows(names: str, answer: str, becomes: str, condition: str, proof: str) -> list[Substitute]:
    return [Substitute(name, answer, becomes, condition, proof) for name in names.split()]


TABLE: Final[Mapping[str, Substitute]] = {
    row.name: row
    for row in (
        *_rows(
            "torch.autograd.Variable torch.autograd.variable.Variable",
            "variable",
            "`t.detach()`, which it is; with `requires_grad=True`, `requires_grad_()` behind it",
            "`t` is a plain tensor, and `volatile` is not set (which warns)",
            "tests/tracing/substitutes/test_dispatch.py::test_variable",
        ),
        *_rows(
            "torch.autograd.grad",
            "gradients",
            "the same, as with `torch._dynamo.config.trace_autograd_ops`, but for that what it goes"
            " through may be gone through again",
            "the call is captured in one graph, and nothing between is computed outside of it",
            "tests/tracing/gradients/test_inner_gradients.py::test_forces",
        ),
        *_rows(
            "torch.Tensor.backward torch.autograd.backward",
            "backward",
            "`torch.autograd.grad` for all leaves that it reaches. What that gives is added to"
            " their `.grad`",
            "as for `torch.autograd.grad`. Without `create_graph`, of strided leaves on which there"
            " are no hooks. No branch is around it, and no argument that it reaches was computed"
            " from others that require gradients",
            "tests/tracing/gradients/test_inner_backward.py::test_backward",
        ),
        *_rows(
            "torch._assert",
            "assertion",
            "its exception where the condition is known not to hold",
            "in mended code, where a handler or a branch is around it",
            "tests/tracing/substitutes/test_dispatch.py::test_assertion",
        ),
        *_rows(
            "torch._check torch._check_with torch._check_index torch._check_value"
            " torch._check_type torch._check_not_implemented",
            "check",
            "nothing where the condition is known to hold, its exception where it is known not to."
            " A side exit where the data decide: the call is made in plain Python",
            "any message. Where the graph cannot be thrown away, Dynamo's own form stays",
            "tests/tracing/substitutes/test_dispatch.py::test_check",
        ),
        *_rows(
            "torch._check_tensor_all torch._check_tensor_all_with",
            "check_all",
            "a side exit under `not cond.all()`",
            "the condition is a tensor of booleans",
            "tests/tracing/substitutes/test_dispatch.py::test_check_of_a_tensor",
        ),
        *_rows(
            "torch._is_all_true",
            "valid",
            "true, and a side exit where it does not hold",
            "a distribution of torch's validates its parameters or a sample",
            "tests/tracing/handlers/test_checks.py::test_distributions_that_validate",
        ),
        *_rows(
            "torch.distributions.constraints.is_dependent",
            "dependent constraint",
            "its answer",
            "the constraint is known while the call is traced",
            "tests/tracing/handlers/test_checks.py::test_distributions_that_validate",
        ),
        *_rows(
            "torch.get_num_threads",
            "threads",
            "the number, which Dynamo guards",
            "always, since Dynamo traces no call that sets it",
            "tests/tracing/substitutes/test_state_questions.py::test_the_number_of_threads",
        ),
        *_rows(
            "inspect.signature",
            "signature",
            "what it gives for the function, made once for all calls",
            "it is asked of a method of an object that the call has made, as"
            " `Module.__setattr__` does where a buffer is stored",
            "tests/tracing/substitutes/test_buffers_made.py::test_buffers_of_modules_made_in_the_call",
        ),
        *_rows(
            "torch.Tensor.requires_grad_",
            "requires_grad",
            "nothing where the tensor requires gradients already, or does not and is not to. Else"
            " a new leaf in the graph, or behind the graph for a tensor that only leaves it. For an"
            " argument it is one in front of the graph, whose flag may be set back behind it",
            "for a new leaf: nothing leaves the graph that would not require gradients without it,"
            " but the tensor itself, of which nothing is computed. For an argument: it was"
            " not changed before, and views taken before are not used or asked behind. It is not"
            " used behind where it is set back, and no branch is around it",
            "tests/tracing/substitutes/test_dispatch.py::test_requires_grad",
        ),
        *_rows(
            "torch.nn.Parameter torch.nn.parameter.Parameter",
            "parameter",
            "a parameter that is made before the graph runs, afresh at each call, and filled inside"
            " the graph at its place",
            "the tensor is computed in the call, has a known size and memory of its own, and is not"
            " used behind that place. Whether the call is made does not depend on data",
            "tests/tracing/substitutes/test_new_parameters.py::test_layers_made_in_the_call",
        ),
        *_rows(
            "random.random random.uniform random.triangular random.gauss random.normalvariate"
            " random.lognormvariate random.expovariate random.gammavariate random.betavariate"
            " random.paretovariate random.weibullvariate random.vonmisesvariate random.randint"
            " random.randrange random.getrandbits random.choice random.choices random.sample",
            "draw",
            "a number, or a list of them, drawn before the graph runs, afresh at each call",
            "the arguments are constants, or numbers that are computed in front of the graph. These"
            " are computed of earlier draws and of what the call is given. Numbers of one type are"
            " chosen from. In an arm the condition can be computed in front of the graph",
            "tests/tracing/substitutes/test_host_calls.py::test_draws_of_python",
        ),
        *_rows(
            " ".join(
                f"numpy.random.{name}"
                for name in (
                    "rand randn random random_sample ranf sample uniform normal standard_normal"
                    " randint permutation choice binomial poisson exponential beta gamma laplace"
                    " lognormal"
                ).split()
            ),
            "draw",
            "a number or an array, drawn from numpy's generator before the graph runs, afresh at"
            " each call (stock Dynamo draws from torch's generator instead)",
            "the arguments are constants, or, of what gives a number, numbers that are computed in"
            " front of the graph. In an arm the condition can be computed in front of the graph",
            "tests/tracing/substitutes/test_host_calls.py::test_draws_of_numpy",
        ),
        *_rows(
            " ".join(
                f"time.{name}{unit}"
                for name in ("time", "perf_counter", "monotonic", "process_time", "thread_time")
                for unit in ("", "_ns")
            ),
            "clock",
            "the same clock, read inside the graph at its place, afresh at each call",
            "whether the call is made does not depend on data",
            "tests/tracing/substitutes/test_host_calls.py::test_clocks",
        ),
        *_rows(
            "math.isnan math.isinf math.isfinite",
            "float test",
            "`torch.isnan` and so on of the tensor that the number is taken from",
            "the number comes out of a tensor. Of others Dynamo knows it by itself",
            "tests/tracing/arithmetic/test_ordering.py::test_a_number_is_nan_or_infinite_as_its_tensor_is",
        ),
        *_rows(
            "builtins.BaseException.add_note",
            "add note",
            "an item more in `__notes__`, a list that is made where there is none",
            "a string, and an exception that the call has made and has not shown in output",
            "tests/tracing/handlers/test_exception_notes.py::test_notes",
        ),
        *_rows(
            "torch.nn.functional.batch_norm",
            "batch norm",
            "the same with copies of the running statistics, and an operator that gives the new"
            " ones, of which the momentum is a tensor",
            "the momentum is a number that is taken from a tensor, in training: a layer with"
            " `momentum=None`",
            "tests/tracing/substitutes/test_batch_norms.py::test_cumulative_averages",
        ),
        Substitute(
            "itertools.groupby",
            "call",
            "the same in Python, which Dynamo traces (stock Dynamo takes keys that are constants,"
            " and hands each run out as a list of its own)",
            "Dynamo can iterate over what is given",
            "tests/tracing/substitutes/test_item_groups.py::test_runs_of_items",
            replacement=item_groups.ItemGroups,
            parts=item_groups.CODE,
        ),
        *_rows(
            "torch.nn.functional.one_hot",
            "one hot",
            "a comparison with the numbers of all classes. What is none is left to plain Python",
            "no number of classes is given, or one that is taken out of a tensor",
            "tests/tracing/substitutes/test_one_hot.py::test_as_many_classes_as_the_data_say",
        ),
        *_rows(
            "torch.repeat_interleave torch.Tensor.repeat_interleave",
            "repeated rows",
            "`index_select` by an index that is made once for all calls with the same counts",
            "integers count as many rows as there are, and no `output_size` is given",
            "tests/tracing/substitutes/test_repeated_rows.py::test_counts_that_are_given_twice",
        ),
        *_rows(
            "torch.Tensor.random_",
            "random integers",
            "`tensor.copy_(torch.randint(...))`, which draws the same numbers",
            "bounds are given, and the tensor is contiguous and requires no gradient",
            "tests/tracing/substitutes/test_random_integers.py::test_what_eager_execution_draws",
        ),
        *_rows(
            "random.seed numpy.random.seed torch.manual_seed torch.random.manual_seed",
            "seed",
            "the same call before the graph runs, in its order among the draws of Python and numpy",
            "the seed is a constant. For torch: nothing has drawn from its generator in the call,"
            " and the generator that is returned is not used",
            "tests/tracing/substitutes/test_host_calls.py::test_seeds",
        ),
        *_rows(
            "torch.tensor",
            "tensor of array",
            "`.to(...)` of the tensor that the graph has for the array, without the warning that"
            " torch gives when a tensor is copied so. It is `torch.arange` for a range up to a"
            " size",
            "a numpy array that the graph has as a tensor, or a range up to a size that the data"
            " decide and `torch.int64`, and constants for `dtype` and `device`",
            "tests/tracing/substitutes/test_substituted_effects.py::test_tensor_of_an_array",
        ),
        *_rows(
            "torch.as_tensor",
            "tensor of items",
            "`torch.stack` of the tensors in a list, of one number each; `torch.tensor` of numbers",
            "integers, in lists of equal lengths, and tensors on the CPU that require no gradient."
            " They are of one type, which is that asked for, or integers that are asked for as"
            " `int64`. Or numbers alone, some of them out of tensors",
            "tests/tracing/indexing/test_stacked_items.py::test_tensors_in_lists",
        ),
        *_rows(
            "torch.Tensor",
            "default tensor of array",
            "`.to(...)` of the tensor that the graph has for the array, which Dynamo leaves at the"
            " type of the array",
            "a numpy array that the graph has as a tensor, and the processor as default device",
            "tests/tracing/substitutes/test_arrays.py::test_a_tensor_of_the_default_type",
        ),
        *_rows(
            "torch.LongTensor torch.IntTensor torch.FloatTensor torch.DoubleTensor",
            "tensor of numbers",
            "`torch.tensor` of the numbers, with that type, on the CPU",
            "a list of integers, or for the last two of numbers, some of them out of tensors",
            "tests/tracing/substitutes/test_arrays.py::test_tensors_of_numbers_out_of_tensors",
        ),
        *_rows(
            "numpy.ndindex",
            "places",
            "an iterator over all places, which are tuples",
            "sizes that are known, as arguments or in one tuple, and no more than 1024 places",
            "tests/tracing/substitutes/test_arrays.py::test_places_of_all_items",
        ),
        *_rows(
            "torch.sparse_coo_tensor",
            "coordinates",
            "a note of its indices and values, of which `.to_dense()` makes a tensor in the graph",
            "three arguments, with values that are numbers and require no gradient, and a size."
            " Anything else that is done with it breaks the graph",
            "tests/tracing/indexing/test_coordinates.py::test_numbers_are_summed_up_at_their_places",
        ),
        *_rows(
            "scipy.optimize.linear_sum_assignment",
            "assignment",
            "an operator that makes the same call",
            "costs are a tensor of the CPU's that requires no gradient, or an array that the graph"
            " has as a tensor",
            "tests/tracing/opaque/test_assignments.py::test_pairs_of_least_costs",
        ),
        *_rows(
            "torch.nn.utils.rnn.pack_padded_sequence",
            "packed",
            "an operator that calls the same kernel, and is handed how many rows the result has",
            "one graph is asked for, and there is a clip",
            "tests/tracing/recurrent/test_packed_sequences.py::test_one_graph",
        ),
        *_rows(
            "torch.nn.utils.rnn.pad_packed_sequence",
            "unpacked",
            "an operator that makes the same call, and is handed how many steps the result has",
            "one graph is asked for",
            "tests/tracing/recurrent/test_packed_sequences.py::test_one_graph",
        ),
        *_rows(
            "torch.lstm torch.gru torch.rnn_tanh torch.rnn_relu",
            "recurrent layer",
            "an operator that makes the same call. Its backward makes it again",
            "one graph is asked for, and the layer is given a packed sequence, or gradients flow"
            " through it in an arm, without dropout between its layers in training",
            "tests/tracing/recurrent/test_packed_sequences.py::test_one_graph",
        ),
        *_rows(
            "copy.deepcopy",
            "deepcopy",
            "`t.clone()` of a tensor, in new lists, tuples and dictionaries",
            "each tensor is a plain one that requires no gradients and fills its memory, and no"
            " other tensor of that memory is copied with it",
            "tests/tracing/substitutes/test_substituted_effects.py::test_deep_copies",
        ),
        *_rows(
            "copy.copy",
            "copy",
            "`t.detach()` of a tensor, `.copy()` of a list or dictionary",
            "a plain tensor that requires no gradients; no subclass of `list` or `dict`",
            "tests/tracing/substitutes/test_substituted_effects.py::test_flat_copies",
        ),
        *_rows(
            "torch.backends.cudnn.flags",
            "cudnn flags",
            "nothing: they matter to no operation of the block",
            "all tensors in the block lie in the memory of the CPU",
            "tests/tracing/substitutes/test_substituted_effects.py::test_flags_of_cudnn",
        ),
        *_rows(
            "torch.set_grad_enabled.clone",
            "grad mode",
            "`torch.set_grad_enabled(...)` with the same mode: what the decorator"
            " `@torch.set_grad_enabled(...)` enters in each call",
            "the call has something that bcmend mends, in this function or in another one",
            "tests/tracing/substitutes/test_elided_contexts.py::test_a_decorator_sets_grad_mode",
        ),
        *_rows(
            "threading.Lock.__enter__",
            "lock",
            "nothing: `with lock:` as CPython does without it since 3.12",
            "the lock is that of `functools.cached_property`",
            "tests/tracing/substitutes/test_substituted_effects.py"
            "::test_the_lock_of_a_property_that_is_computed_once",
        ),
    )
}
"""Every row of bcmend's own, by name."""

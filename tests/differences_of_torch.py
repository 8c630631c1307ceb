"""What releases of torch do differently by themselves; tests name it as their condition."""

from __future__ import annotations

import sys
from typing import Final

import torch

_RELEASE: Final = ".".join(torch.__version__.split(".")[:2])

#: ``f"{number:.1f}"`` of a float that has become dynamic ends in ``InternalTorchDynamoError``.
FORMATTED_FLOATS_FAIL: Final = _RELEASE != "2.13"
#: Dynamo closes a generator that is left in a ``yield from``, and what that goes over, too; of a
#: tuple or a list it cannot.
GENERATORS_LEFT_IN_YIELD_FROM_FAIL: Final = _RELEASE == "2.15"
#: Dynamo closes a generator that the call has made when the call ends.
GENERATORS_ARE_CLOSED: Final = _RELEASE != "2.13"
#: An error of an operator on constants ends in ``InternalTorchDynamoError`` where its arguments are
#: numbers, as those of an overflow are.
ERRORS_WITH_NUMBERS_FAIL: Final = _RELEASE == "2.14"
#: The name of a function is that of its code, whatever name it was given.
FUNCTIONS_ARE_NAMED_AFTER_CODE: Final = _RELEASE == "2.15"
#: A queue that was changed and is put elsewhere is there as a copy.
QUEUES_ARE_COPIED: Final = _RELEASE != "2.15"
#: Members that ``-=`` takes from a set stay in it.
KEYS_STAY: Final = _RELEASE != "2.15"
#: A copy of a queue of limited length has no limit.
COPIES_HAVE_NO_LIMIT: Final = _RELEASE == "2.13"
#: Dynamo traces stores to attributes of a ``SimpleNamespace``.
NAMESPACES_ARE_TRACED: Final = _RELEASE == "2.15"
#: Dynamo draws for ``random.shuffle`` while it traces, and guards nothing of the generator.
SHUFFLES_WHILE_TRACING: Final = _RELEASE == "2.15"
#: A function that is captured whole does not raise where ``torch._check`` is given a number.
CHECKS_OF_NUMBERS_PASS: Final = _RELEASE != "2.13"
#: A tensor as the index of what ``vmap`` maps ends in an internal error, not a ``UserError``.
MAPPED_ITEMS_FAIL_INSIDE: Final = _RELEASE != "2.13"
#: With Inductor the backward of a side of ``torch.cond`` writes over arguments of the whole graph.
SIDES_WRITE_OVER_ARGUMENTS: Final = _RELEASE != "2.15"
#: Dynamo traces the code that makes the text of an object, by ``str``, ``repr`` or a format.
TEXTS_ARE_TRACED: Final = _RELEASE != "2.13"
#: Dynamo traces ``tensor.requires_grad = ...``.
STORES_TO_REQUIRES_GRAD_ARE_TRACED: Final = _RELEASE == "2.15"
#: An optimizer whose settings a compiled function changes gets the setting ``capturable``.
OPTIMIZERS_BECOME_CAPTURABLE: Final = _RELEASE != "2.15"
#: A frame that breaks at the range of a loop is resumed there, and not left to Python.
RANGES_ARE_RESUMED: Final = _RELEASE != "2.13"
#: An attribute that a slice does not have ends in ``InternalTorchDynamoError``.
MISSING_ATTRIBUTES_OF_SLICES_FAIL: Final = _RELEASE == "2.14"
#: Inductor takes the rows of ``x[mask].reshape(-1, 32)`` together for 32 numbers.
JOINED_ROWS_ARE_WRONG: Final = _RELEASE != "2.15"
#: Inductor fails over sums of data-dependent sizes in a backward: it asks for them too early.
SUMS_OF_SIZES_FAIL_IN_BACKWARDS: Final = _RELEASE != "2.13"
#: Inductor removes a copy of what the graph changes later: its readers have the later contents.
COPIES_OF_CHANGED_ARE_REMOVED: Final = _RELEASE != "2.15"
FACTORS_OF_PRODUCTS_ARE_LOST: Final = _RELEASE != "2.15"
#: The backward of a loop that begins with a turn of its own writes over a gradient.
LOOPS_WRITE_OVER_RESULTS: Final = _RELEASE == "2.13"
#: AOTAutograd's cache gives the graph of one float for another that was computed of a float.
COMPUTED_FLOATS_ARE_FROZEN: Final = _RELEASE != "2.15"
#: A view of half of a dynamic size cannot be given to the sides of ``torch.cond``.
VIEWS_OF_HALVES_FAIL_IN_CHOICES: Final = _RELEASE == "2.13"
#: Dynamo makes another node of a store to the ``data`` of a tensor, and notes what an input was.
STORES_TO_DATA_ARE_NOTED: Final = _RELEASE == "2.15"
#: What a condition raises where a frame goes on behind a graph names the first line of it.
CONDITIONS_RAISE_AT_THE_FIRST_LINE: Final = _RELEASE == "2.15" and sys.version_info >= (3, 13)
#: A product of three sizes is written as one multiplication of three factors.
PRODUCTS_OF_SIZES_ARE_TAKEN_TOGETHER: Final = _RELEASE != "2.15"
#: Whether the square of a size divides the size cannot be asked.
SQUARES_OF_SIZES_FAIL: Final = _RELEASE == "2.13"
#: Inductor fails at a mask that selects rows of what a side of ``torch.cond`` gives.
MASKS_BEHIND_CHOICES_FAIL: Final = _RELEASE == "2.13"
#: Whether a number is in a range is 0 or 1.
NUMBERS_IN_RANGES_ARE_COUNTED: Final = _RELEASE == "2.13"
#: AOTAutograd's cache stores graphs with blocks of autocast.
BLOCKS_OF_AUTOCAST_ARE_STORED: Final = _RELEASE != "2.13"

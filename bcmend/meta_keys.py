"""Names under which bcmend keeps something on objects of torch and of Dynamo.

Each begins as no name of theirs does, and stands here once, so that no two parts of bcmend take the
same one for different things.
"""

from __future__ import annotations

from typing import Final

# In the ``meta`` of a node of a graph.

#: What is hazardous about the operator.
HAZARDS: Final = "bcmend_hazards"
#: That the node takes one of the two sides of a branch.
SELECTS: Final = "bcmend_selects"
#: That it does, and the side not taken is to get no gradients.
TAKES_A_SIDE: Final = "bcmend_takes_a_side"
#: That the node selects by a mask that selects all where its arm is not taken.
SELECTS_ALL: Final = "bcmend_selects_all"
#: How deep, and how large, the ``torch.cond`` is.
CONDS: Final = "bcmend_conds"
#: That the node gives what nobody reads, since its side has nothing there.
ABSENT: Final = "bcmend_absent"
#: That the node was made to write choices one behind another, and can go if nobody reads it.
FLAT: Final = "bcmend_flat"
#: That the node detaches what it selects from.
DETACHED: Final = "bcmend_detached"
#: That the node changes the form of its first argument, for a side that is run directly.
FORM: Final = "bcmend_form"
#: That the node is computed beside a number that is taken out of a tensor.
BESIDE_NUMBER: Final = "bcmend_beside_number"
#: That the node is a number that a function of numpy has given.
OF_NUMPY: Final = "bcmend_of_numpy"
#: That the node says what the condition of a branch tells of a number.
TOLD: Final = "bcmend_told"
#: On a node that is told to later stages only, of what holds whatever the data are.
HOLDS: Final = "bcmend_holds"
#: Whether the node may write to what it is given, and whether it sets a default.
MAY_CHANGE: Final = "bcmend_may_change"
#: What random numbers the node draws.
FILLINGS: Final = "bcmend_fillings"
#: The call of the ATen operator that draws what the node does.
DRAWS_AS: Final = "bcmend_draws_as"
#: That the node only keeps random operators that decide something in front of the graph.
KEEPS: Final = "bcmend_keeps"
#: That the node writes the value of ``tensor.data = value``, and what must not be seen of it.
GIVEN: Final = "bcmend_given"

# In the ``meta`` of a graph module.

#: That the graph is a side of a ``torch.cond``, and of which structure.
SIDE: Final = "bcmend_side"
#: That the graph may be run again.
REPEATABLE: Final = "_bcmend_repeatable"
#: That the graph only computes.
PURE: Final = "_bcmend_pure"
#: Of a function: that it runs a side of a choice of ours.
ARM: Final = "_bcmend_arm"

# Attributes.

#: Of a fake tensor: its first item, as the model of a number.
FIRST_ITEM: Final = "_bcmend_first_item"
#: Of a model of a container: the journal of what changes it.
JOURNAL: Final = "bcmend_journal"
#: Of a model of a list: the trace in which some of its items may not be there.
OPTIONAL: Final = "bcmend_optional"
#: Of a hooked function: the next one of its chain.
INNER: Final = "_bcmend_inner"
#: Of what stands before ``torch.compile``: what stood there.
STANDS_BEFORE: Final = "_bcmend_stands_before"
#: Of a tensor: the name of what has computed it in eager execution.
HISTORY: Final = "_bcmend_history"
#: On an exception: a function of the user inside of a graph has raised it.
OF_A_FUNCTION: Final = "_bcmend_of_a_function"

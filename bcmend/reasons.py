"""Every reason for which bcmend leaves a site as it was; code names a reason by its slug."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a site is refused: a stable slug, what was found, and what to change about it."""

    slug: str
    meaning: str
    hint: str


#: By slug: what was found, in short sentences, and what to change.
_TEXTS: Final = {
    "switched-off": (
        "The policy switches this site off by name or by pattern.",
        "Remove the name or the pattern that matches it from `Policy(off=...)`.",
    ),
    "policy-keep": (
        'The policy has `output="keep"` or `guards="keep"`, which leaves such statements as they '
        "are. Or torch has been told to ignore some: then all of them are left to it.",
        'Choose "defer", the default, for `output` or `guards` in the policy. Also empty '
        "`torch._dynamo.config.ignore_logging_functions`.",
    ),
    "generator": (
        "A generator yields a value inside the region, and its frame cannot be split there. Or the "
        "call hands the generator out before it has run.",
        "Yield on every path, as in `yield a if t else b`. Or collect the values in a list.",
    ),
    "coroutine": (
        "The function is a coroutine or an asynchronous generator, whose frame cannot be split.",
        "Move the statement into an ordinary function that the coroutine calls.",
    ),
    "frame-introspection": (
        "The region looks at its own frame, and would see another frame once moved. It does so by "
        "`locals`, `exec`, `eval`, `sys._getframe`, `inspect.stack`, or `traceback.print_stack` "
        "without a limit.",
        "Take the introspection out of the branch, or pass the values it looks up explicitly.",
    ),
    "return-in-try": (
        "The region leaves an exception handler, or leaves a `with` block in more ways than can be "
        "brought together. What is done on leaving must still be done. Or the region holds a part "
        "of a handler without the rest.",
        "Assign the result to a variable in the block and return it after the block.",
    ),
    "consumes-iterator": (
        "The branch decides how far an iterator goes that was there before the call, or that the "
        "call hands out. Or it may resume a generator that stands inside a `with` or `try`. Such a "
        "generator cannot be set back.",
        "Let nothing but the loop hold the iterator. Or make a list of its items before the "
        "branch.",
    ),
    "arms-differ": (
        "The two arms leave values behind that cannot be merged into one. Examples are None and a "
        "tensor, or containers of another structure.",
        "Make both arms produce the same structure with the same dtypes. For example, make a "
        "tensor of zeros in place of None.",
    ),
    "arm-effects": (
        "An arm changes something that outlives it in a way that cannot be made conditional.",
        "Compute the new value in the branch and store it once after the branch. Before that, copy "
        "what an earlier operation may have kept for its backward or another view shares.",
    ),
    "arm-setting": (
        "An arm changes a setting of torch for the process or the thread. Examples are the default "
        "dtype, grad mode, the precision of matrix products and a flag of a back end.",
        "Change the setting before the branch, or outside of what is compiled. `with` blocks that "
        "bring it back within the arm are fine.",
    ),
    "arm-hook": (
        "An arm registers or removes a hook of a tensor, or asks for its gradient to be kept.",
        "Register the hook before the branch, and let it look at the condition.",
    ),
    "arm-gradient": (
        "An arm stores to the gradient of a tensor. The sides leave what has no common form, such "
        "as None and a tensor.",
        "Set gradients outside of what is compiled, or to zeros in place of None.",
    ),
    "arm-untraceable": (
        "An arm contains an operation that Dynamo cannot capture. Or it contains one that fails "
        "while it is captured, in a call that cannot be made again in plain Python.",
        "Move that operation out of the branch, or replace it by tensor operations.",
    ),
    "random-under-gradients": (
        "An arm draws random numbers that cannot be drawn before it, while gradients flow. They "
        "depend on the arm's data, or another operation could fail first (dropout on a CPU is "
        "drawn all the same). Or they are drawn in a checkpoint, in another operator or in a "
        "nested branch.",
        "Draw the random numbers before the branch, and only use them in the arm.",
    ),
    "hidden-state": (
        "An operator that is not torch's (`torch.library`, a kernel of Triton, a function that "
        "Dynamo does not look into) may have a state. It would not run as often as in eager "
        "execution. It stands in an arm while gradients flow, whose backward would run it again. "
        "Or it stands behind a check that is made when the graph has run.",
        "Call it before the branch, or make the check behind it. Or make it of operators of "
        "torch's.",
    ),
    "multi-element-condition": (
        "The condition is a tensor with several elements. Its truth value is an error in eager "
        "execution too.",
        "Reduce the condition to one element with `.any()` or `.all()`.",
    ),
    "not-captured": (
        "The mended code did not compile, so this site was put back as it was.",
        "Read the detail of the record for the compiler's own message. Or try another back end.",
    ),
    "differs": (
        "A call that `Policy(verify=...)` has compared with eager execution has shown something "
        "else. Without this site it does not.",
        "Please report it, with the text of the warning. `Policy(off=...)` keeps the site off.",
    ),
    "handler-in-caller": (
        "The check, or an argument of output, may raise inside a `try` that catches the exception. "
        "So it cannot be raised at the end of the call. Nor can the call be made again in plain "
        "Python, since its graph changes a tensor, draws random numbers or may break.",
        "Make it outside the `try`, or test the condition instead of catching.",
    ),
    "stack-shape": (
        "The region takes or leaves unfinished operands of a larger expression that cannot be "
        "handed over. An example is the callable of a call that is being made. Or the region reads "
        "a variable that a comprehension has set aside.",
        "Assign the conditional expression to a variable in a statement of its own.",
    ),
    "too-deep": (
        "Branches stand in each other deeper than can be traced or compiled in reasonable time. "
        "Early returns and loops that are left stand so, too. Or an item is read at a "
        "data-dependent place in a container of more than 16.",
        "Leave fewer branches after each other in one call. Merge their conditions, or move the "
        "later ones out of what is compiled. A loop that only computes tensors and counts is no "
        "chain of branches. Keep what it makes in a tensor of a fixed size, not in a list.",
    ),
    "search-too-long": (
        "Tracing branches inside each other has taken longer than a search for lowerings may, and "
        "none was found. Or the traces of the call that were made in vain have taken longer.",
        "Leave fewer branches and loops that are left early inside each other. Merge their "
        "conditions, or move a part of them out of what is compiled. Or switch them off by "
        "`Policy(off=...)`, which saves the time of the search.",
    ),
    "alias-changed": (
        "A result of the branch or loop is, on one side, an older tensor or another result, or "
        "shares memory with one. One of the two is changed in place later, or both leave the call. "
        "Or the program asks which object one is (`is`, `id`, a hook, a key).",
        "Copy the tensor in the branch (`.clone()`), or make the later change out of place.",
    ),
    "where-would-speculate": (
        'The policy, or compiled autograd, asks for "where". But an arm has an operation that may '
        "fail on the data, or draws random numbers. It would run although its side was not taken.",
        'Choose `Policy(branch="auto")` or "cond", and compile without compiled autograd.',
    ),
    "output-shape": (
        "The output call cannot be made later. An argument binds a variable in one case only, or "
        "one that nested functions share, or makes a function of the frame's variables. Or the "
        "call returns something that is used, or writes its callers. Or it writes an exception of "
        "which the trace does not know the text (Dynamo's model of Python has raised it) or the "
        "place (in a generator, or in code that Dynamo does not inline).",
        "Compute the argument in a statement of its own before the output call, and drop its "
        "result.",
    ),
    "cannot-snapshot": (
        "A value that the output or the exception shows cannot be kept as it is until the end of "
        "the call. It is an iterator, for example. Or the text of an object would show what the "
        "rest of the call changes, or making the text changes something. Or the call replaces a "
        "standard stream, or sets how tensors are printed.",
        "Hand over a tensor, a number, a string or a container of these. Give `print` its `file`.",
    ),
    "no-equal-substitute": (
        "A call that Dynamo cannot trace has a substitute. But what it is given here, or what "
        "becomes of its result, could tell the two apart.",
        "See `docs/substitutes.md` for what each substitute asks for. Or make the call outside of "
        "what is compiled.",
    ),
    "torch-differs": (
        "The region comes to a method of torch for which a part of bcmend was written. In the "
        "running release it is another one than in those that bcmend is tested with.",
        "Use a release of torch that bcmend is tested with. `python -m bcmend doctor` names them.",
    ),
    "export": (
        "The function is being exported, and an operation of one side fails on fake tensors. An "
        "exported program has no Python in which that side could be tried.",
        "Raise an exception there, which becomes an assertion of the exported program.",
    ),
}

REASONS: Final[Mapping[str, Reason]] = MappingProxyType(
    {slug: Reason(slug, *texts) for slug, texts in _TEXTS.items()}
)
"""Every reason by its slug, in the order of the table."""

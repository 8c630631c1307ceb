"""Small programs, one for each form that a site can take, with what has to become of each.

Each pattern is in the module of one topic. The question is: what is the pattern about, that is,
which construct or which effect has it that no other pattern has? The topic is the first row of this
table that answers it. A new pattern goes to the end of that module.

====================  ==============================================================================
topic                 what belongs there
====================  ==============================================================================
order_of_records      Output and checks between changes, random numbers and what may fail
checks.handled        Checks whose exception the program handles: `try`, `finally`, `suppress`
checks.order          Checks with effects, output or operations that may fail around them
checks.placement      Checks in functions, modules, hooks, loops and `with` blocks
checks.statements     Checks by `assert` or `torch._check`, in arms and several in sequence
checks.exceptions     What a check raises: class, arguments, cause and message
output.arguments      How arguments of output are computed: formatted, starred, failing
output.blocks         Output in `try` and `with` blocks, and handlers that show an exception
output.texts          Output of objects whose text is made of what they do not hold
output.moments        Output of values that are changed, bound again or deleted afterwards
output.placement      Output in arms, loops, functions and modules
output.loggers        Output by loggers and warnings: levels, callers, adapters, filters
output.sinks          Output by other callables: `print`, streams, consoles, writers
output.values         What output shows: tensors, numbers, objects, modules
host_calls            Calls that Dynamo cannot trace: host random numbers, clocks, locks, copies
effects.aliases       Arms that change a tensor in place which has views or other names
effects.in_place      Arms that change a tensor in place, running statistics among them
effects.containers    Arms that change a list, a dictionary or a queue
effects.attributes    Arms that set attributes, buffers, global or nonlocal variables
randomness            Arms that draw random numbers of torch, and layers dropped at random
scopes.blocks         Branches in, around and out of `with` and `try` blocks
scopes.calls          Branches in closures, decorators, hooks, methods and base classes
scopes.variables      Arms that store to global variables and to those of enclosing functions
loops.open            Loops with a data-dependent number of iterations, or over data-dependent items
loops.exits           Loops over a known number that end early: `break`, `return`, `else`
loops.bodies          Branches within iterations, comprehensions and generators
dynamic.items         Items of lists, dictionaries and modules at places that the data determine
dynamic.places        Reads and stores at places out of tensors: masks, indices, slices
dynamic.sizes         Tensors of data-dependent size, and numbers out of tensors as sizes
arms.failing          Arms that fail, give no finite value or cannot be traced
arms.absent           Arms that leave a variable without a value, deleted, or `None`
arms.unlike           Arms whose values have no common form: numbers, functions, shapes, types
branches.expressions  `and`, `or`, `not`, chained comparisons and conditional expressions
branches.tests        Conditions of one test: a truth, or a bool or number out of a tensor
branches.statements   Branches on a plain comparison: `if`, `elif`, nesting, early returns, layers
====================  ==============================================================================

A check is a statement that raises because of the values of tensors. What a pattern only uses by the
way, such as a print in an arm that is there to be reached, does not count.
"""

from corpus.patterns.pattern import Pattern, found_outcome
from corpus.patterns.registry import PATTERNS, TOPICS, pattern_named

__all__ = ["PATTERNS", "TOPICS", "Pattern", "found_outcome", "pattern_named"]

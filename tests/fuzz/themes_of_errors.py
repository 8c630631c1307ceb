"""Themes about exceptions that the program raises itself, handles and shows."""

from __future__ import annotations

from typing import Final

from tests.fuzz.theme import Theme, templates
from tests.fuzz.values import INT, VECTOR

SHOWN_ERRORS: Final = Theme(
    "exceptions that are shown",
    {
        VECTOR: ("run_through(torch.relu, {vector})", "Limited({int})({vector}, 1)"),
        INT: ("looked_up({'a': 1, 'b': 2}, {text})",),
    },
    templates(
        r"""
try:
    {v:=vector} = <passed_on|checked>({v}, {int})
except <ValueError|RuntimeError|Exception> as error:
    logger.<exception|error|warning>('handled %s', error<|, exc_info=True|, exc_info=error>)
    print(repr(error), error.args)

try:
    {v:=vector} = Limited({int})({v}, <1|2|3>)
except RuntimeError as error:
    logger.<exception('left a module')|error('left', exc_info=True)>

try:
    {v:=vector} = run_through(Refusing(<0|1|2>), {v})
except (ValueError, IndexError) as error:
    logger.exception('refused')
    <traceback.print_exc()|print(traceback.format_exc())|print(error)>

try:
    raise <Coded({text}, {int})|Wrong({int})|Lettered({text})|Odd({vector}.detach())>
except Exception as error:
    <print(error, repr(error))|print(error.args)|logger.exception('own')|
        print(f'''{{text}} {error}''')>

try:
    try:
        raise ValueError(<'first'|{int}>)
    except ValueError as error:
        raise <KeyError('second')|Coded('third')> <from error|from None|>
except (KeyError, Coded) as error:
    logger.exception('again %s', <error|error.__cause__|type(error).__name__>)

try:
    looked_up(<{'a': 1}|{table}>, {text})
except LookupError as error:
    logger.error('looked up', exc_info=<True|error|1>)

try:
    found = <[1, 2][{int}]|{'a': 1}[{text}]|int({text})|{int} // {int}|(1, 2)[5]|next(iter([]))>
    print(found)
except Exception as error:
    <print(error)|print(repr(error))|logger.exception('of Python')|print(error.args)>

try:
    for each in failing_at({int}):
        {v:=vector} = {v} + each
except ValueError:
    logger.exception('in the midst')

try:
    require({vector}, {float})
except ValueError as error:
    logger.<exception|warning>('by the data %s', error)

try:
    {v:=vector} = passed_on({v}, {int})
finally:
    print('left')

kept_error = None
try:
    raise Wrong({int}, {vector})
except Wrong as error:
    kept_error = error
<print(kept_error.args[0])|logger.error('later', exc_info=kept_error)|print(kept_error)>

try:
    <block>
    raise Coded('at the end')
except Coded as error:
    if {data}:
        <print(error.code)|logger.exception('on one side')|raise>

try:
    try:
        raise Wrong({text})
    finally:
        <block>
except ValueError:
    print(sys.exc_info()[0].__name__)
    logger.info('behind', exc_info=sys.exc_info())
"""
    ),
)

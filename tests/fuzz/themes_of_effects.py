"""Themes about what can be seen outside: output, checks, clocks."""

from __future__ import annotations

from typing import Final

from tests.fuzz.theme import Theme, templates
from tests.fuzz.values import BOOL, FLOAT, INT, TEXT, VECTOR

CLOCKS_CONTEXT_VARIABLES: Final = Theme(
    "clocks and context variables",
    {
        BOOL: (
            "time.time() > 0",
            "time.perf_counter() < 0",
            "time.monotonic_ns() > 1",
            "(current.get(None) is None)",
        ),
        FLOAT: (
            "time.time() * 0",
            "min(time.perf_counter(), 0.0)",
            "min(time.process_time(), 0.0)",
        ),
        INT: (
            "min(time.time_ns(), 3)",
            "current.get(1)",
            "len(str(current.get('')))",
        ),
        VECTOR: (
            "{vector} * (time.time() > 0)",
            "{vector} + current.get(0)",
        ),
    },
    templates(
        r"""
current.set({int})

current.get()

begun = time.time()
<block>
assert time.time() >= begun

token = current.set({int})
<block>
current.reset(token)

token = current.set({int})
try:
    <block>
finally:
    current.reset(token)

current.set('text')
print(current.get())

print('took', time.time() * 0)
"""
    ),
)
CHECKS_TORCH: Final = Theme(
    "checks of torch",
    {
        VECTOR: (
            "bounded({vector})",
            "bounded({vector}, limit={float})",
        ),
    },
    templates(
        r"""
torch._check({plain}, lambda: 'never')

torch._check(bool({data}), lambda: f'''wrong {{int}}''')

torch._check({mask}.sum().item() > 0)

torch._check(bool({mask}.all()), lambda: 'all')

torch._check_value(bool({data}), lambda: 'a value')

torch._check_index(bool({mask}.any()), lambda: 'an index')

torch._check_type({vector}.dim() == 1, lambda: 'a type')

torch._check_not_implemented(bool({data}), lambda: 'not yet')

torch._check_with(KeyError, bool({data}), lambda: 'a key')

torch._check_tensor_all({mask}, lambda: 'some')

torch._check_tensor_all_with(ValueError, {vector} < 50, lambda: 'large')

torch._assert({data}, 'asserted')

try:
    torch._check(bool({data}), lambda: 'caught')
except RuntimeError as error:
    print(error)

assert {mask}.all(), f'''at {{int}}'''

assert {vector}.shape == (3,), 'shape'

if not {mask}.any():
    raise ValueError(f'''none of {{vector}.tolist()}''')

if {data}:
    raise Odd('odd', {int}, {vector}.detach())

if {data}:
    raise KeyError({text}) from ValueError('cause')

if torch.isnan({vector}).any() or torch.isinf({vector}).any():
    raise ValueError('not finite')

try:
    require({vector})
except ValueError:
    <block>

try:
    if {data}:
        raise Odd('inner')
    <block>
except Odd as error:
    {v:=vector} = {v} + len(error.args)
finally:
    print('finally')

self_check({vector}, {box})

try:
    raise RuntimeError('first')
except RuntimeError:
    if {data}:
        raise
    <block>
"""
    ),
)
OUTPUT: Final = Theme(
    "output of all kinds",
    {
        TEXT: (
            "f'''{{vector}.sum().item():.1f}'''",
            "'%d' % {int}",
            "str({int})",
            "'{}'.format({int})",
            "repr({float})",
        ),
    },
    templates(
        r"""
print({vector}.detach(), {float}, file=sys.stderr)

sys.stdout.write('written\n')

sys.stderr.write(f'''{{int}}''')

sys.stdout.flush()

print(*[1, {int}], sep='')

print(*{list}[:0], {text}, end='')

print({'n': {int}}, [{float}], ({text},))

print('%.2f and %d' % ({vector}.sum().item(), {int}))

print('{} {:>5}'.format({text}, {int}))

print('max ' + str({vector}.max().item()))

print(f'''{{vector}.detach()} {{box}.count!r:>4} {{int}:03d}''')

print({vector}.detach().tolist(), {mask}.tolist())

print([v.sum().item() for v in {list}])

print(len({list}), {vector}.dtype, {vector}.requires_grad, {matrix}.size())

print('odd' if {data} else 'even')

print(f'''{{vector}.argmax().item():d}''', 'x' * {int})

print({vector}.sum().item() / {float})

print([1, 2, 3][{int}])

logger.debug('unseen %s', {vector})

logger.log(logging.WARNING, 'level %s', {int})

logger.log({int} * 10, 'some level')

logger.error('error %(a)s', {'a': {int}})

logger.warning(f'''{{vector}.mean().item()}''')

logging.getLogger('random_program.part').info('part %.1f', {vector}.sum())

logging.info('root')

logging.warning('root %s', {text})

child.info('child %s', {int})

adapter.info('adapted %s', {int})

adapter.warning('adapted')

if logger.isEnabledFor(logging.DEBUG):
    logger.debug('not here')

try:
    require({vector})
except ValueError:
    logger.exception('failed')

try:
    require({vector})
except ValueError as error:
    print('caught', error)
    logger.error('error', exc_info=True)

warnings.warn('user')

warnings.warn('soon', DeprecationWarning, stacklevel=2)

warnings.warn('runtime', RuntimeWarning, stacklevel={int} * 0 + 1)

warnings.warn(UserWarning('an object'))

warnings.warn(f'''{{vector}.sum().item():.1f}''', stacklevel=3)

print('before')
print(Broken())
print('behind')

print(f'''{{vector}.sum().item():.1f}''', Broken(), {int})

{v:=vector} = warned({v})

logger.warning('level %s', {int}, stacklevel=2)

say({vector})

meter('loss', {vector}.sum().item())

Gauge('g').update({vector}.detach())

gauge.update({int})

note({vector})

pprint.pprint({'a': {int}})

traceback.print_stack(limit=1)

{box}.count += 1
print({box}.count, {box})
{box}.count += 1

print(shown)
shown.value = {int}
print(shown)

print(shown, {vector}.detach())
shown.parts.append({int})

with contextlib.redirect_stdout(io.StringIO()):
    print('hidden')
    <block>

with torch.no_grad():
    print({vector} * 2)

if {data}:
    print('taken', {vector}.sum().item())
else:
    logger.info('not taken')

for v in {list}[:2]:
    print('item', v.sum().item())
    if v.sum() > 1:
        break

rest = {vector} * 1
print(rest.detach())
rest = rest.detach().clone()
print(rest)
rest.add_(1)

print({vector}.norm().item(), failing({int}))

write = print if {int} > 1 else note
write({vector}.detach())

getattr(logger, 'info')('by name')
"""
    ),
)

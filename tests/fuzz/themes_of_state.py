"""Themes about what outlives a call: objects, streams, settings, and output of a graph itself."""

from __future__ import annotations

from typing import Final

from tests.fuzz.theme import Theme, templates
from tests.fuzz.values import BOOL, FLOAT, INT, VECTOR

INSIDE_THE_GRAPH: Final = Theme(
    "output and checks inside the graph",
    {
        VECTOR: ("bounded({vector})", "require({vector})"),
    },
    templates(
        r"""
print({vector}.detach(), {int}, {float})

print([{vector}.detach(), {int}], ({float}, {text}), {'k': {vector}.detach()})

print(f'''{{vector}.sum().item():.2f} {{int}} {{mask}.sum().item()}''')

logger.info('inside %s %d', {vector}.detach(), {int})

print({vector}.shape, {vector}.sum().item(), {vector}.max().item() > 1)

{list}.append({vector})
if {data}:
    raise ValueError('behind a list')

{box}.value = {vector}
{box}.count += 1
if {data}:
    raise ValueError('behind a box', {box}.count)

{table}['e'] = {vector}
assert {data}, 'behind a table'

counted = {vector}.detach().clone()
counted.add_(1)
print('counted', counted)
if {data}:
    raise RuntimeError('counted')

settings.rate = {float}
settings.calls += 1
if {data}:
    raise ValueError('settings', settings.calls)

global_count.append({int})
print(len(global_count))
assert not {data}

try:
    print('tried', {vector}.sum().item())
    if {data}:
        raise ValueError('inner')
except ValueError as error:
    print('caught', error)

if {data}:
    print('arm', {vector}.detach(), {int})
else:
    print('other arm')
    logger.warning('other %s', {text})

for i in range(2):
    print('turn', i, {vector}.sum().item())
    if {data}:
        raise ValueError('turn', i)

show({vector}.sum().item())

assert ({vector} < 60).all(), f'''too large: {{vector}.max().item()}'''

norm = nn.BatchNorm1d(3)
print(norm.running_mean)
{v:=vector} = norm(torch.stack([{vector}, {vector} * 2, {vector} + 1]))[0]
if {data}:
    raise ValueError('norm')
print(norm.running_mean.sum().item() > 0)

child.setLevel(logging.INFO)
child.info('level %s', {vector}.sum().item())

print({maybe} is None, {list}[0].detach(), type({box}).__name__)
"""
    ),
)
BROKEN_OUTPUT: Final = Theme(
    "output that fails",
    {
        FLOAT: ("({vector}.sum().item() / {int})", "1 / {float}"),
        INT: ("[1, 2][{int}]", "len({list}[{int}])"),
    },
    templates(
        r"""
print('into a full disk', {int}, file=full)
print('behind it')

print('first', file=full)
print('second', {vector}.sum().item(), file=full)

if {data}:
    print('arm', file=full)
{v:=vector} = {v} + 1

try:
    print('tried', file=full)
    <block>
except OSError as error:
    print('full', error)

print(Broken())
{list}.append({vector})
print('appended')

print('divided', {vector}.sum().item() / {int})

print('item', {list}[{int}].detach())

print(f'''{{vector}.sum().item() / {float}:.1f}''')
print('behind')

loud.warning('handled %d', {int})
print('behind the handler')

loud.info('two %s', {vector}.detach())
loud.error('three')

warnings.warn('as an error', ResourceWarning)

print('%d' % {text})

logger.info('wrong %d', {text})

print('once'); print(Broken(), {vector}.detach()); raise ValueError('third')

if {data}:
    print(1 / {int})
else:
    print({list}[{int}].sum().item())
"""
    ),
)
SETTINGS: Final = Theme(
    "settings that are kept",
    {
        BOOL: ("torch.is_grad_enabled()", "torch.is_autocast_enabled('cpu')", "{vector}.is_leaf"),
        VECTOR: (
            "halved({vector})",
            "({matrix} @ torch.ones(3, 3)).float().sum(0)",
            "quietly({vector})",
        ),
    },
    templates(
        r"""
torch.set_grad_enabled(False)
<block>
torch.set_grad_enabled(True)

with torch.set_grad_enabled({bool}):
    if {data}:
        {v:=vector} = {v} * 2
    <block>

with torch.set_grad_enabled({vector}.requires_grad):
    {v:=vector} = {v} + {vector}

scope = torch.autocast('cpu', dtype=torch.bfloat16)
with scope:
    <block>
with scope:
    {v:=vector} = {v} + ({matrix} @ torch.ones(3, 3)).float().sum(0)

with torch.autocast('cpu', dtype=torch.bfloat16, enabled={bool}):
    if {data}:
        product = {vector} @ torch.ones(3, 3)
    else:
        product = {vector} @ torch.eye(3)
print(product.dtype)
{v:=vector} = product.float()

if {data}:
    with torch.autocast('cpu', dtype=torch.bfloat16):
        {v:=vector} = ({v} @ torch.ones(3, 3)).float()

with torch.autocast('cpu', dtype=torch.bfloat16):
    with torch.autocast('cpu', enabled=False):
        <block>

with torch.no_grad():
    own = {vector} * 1
    if {data}:
        own.mul_(2)
    print(own)
{v:=vector} = {v} + own

with torch.backends.cudnn.flags(enabled={bool}):
    if {data}:
        {v:=vector} = {v} * 2

with torch.backends.mkldnn.flags(enabled={bool}):
    {v:=vector} = {v} * 2

with lock:
    own = {vector} * 2
    total = own.sum()
{v:=vector} = own + total

with lock:
    if {data}:
        {v:=vector} = {v} + 1
    shared = {vector}

lock.acquire()
{v:=vector} = {v} * 2
lock.release()

with torch.random.fork_rng():
    {v:=vector} = {v} + torch.rand(3)

with warnings.catch_warnings():
    warnings.simplefilter('ignore')
    warnings.warn('ignored')
    <block>

previous = logger.level
logger.setLevel(logging.ERROR)
logger.warning('too low')
logger.setLevel(previous)

with contextlib.redirect_stderr(io.StringIO()) as written:
    print('hidden', file=sys.stderr)
print(len(written.getvalue()))

with torch.no_grad():
    for v in {list}[:2]:
        if v.sum() > 1:
            continue
        {v2:=vector} = {v2} + v

with contextlib.ExitStack() as stack:
    if {bool}:
        stack.enter_context(torch.no_grad())
    stack.callback(print, 'callback')
    <block>

for name in ('first', 'second'):
    with managed(name), torch.enable_grad():
        if {data}:
            return {vector}
        {v:=vector} = {v} + 1

try:
    with managed('failing'):
        if {data}:
            raise ValueError('inside')
        <block>
except ValueError as error:
    print('left by', error)

with managed('value') as name:
    outcome = {vector} if {data} else {vector} * 2
    if outcome.sum() > 3:
        raise RuntimeError(name)
{v:=vector} = outcome
"""
    ),
)
CALLED_OBJECTS: Final = Theme(
    "objects that write, count and keep",
    {
        VECTOR: (
            "tracker.update({vector})",
            "remembered({vector}, 'a')",
            "Keeper({vector}).step({vector})",
        ),
        INT: ("tracker.count", "len(tracker.seen)"),
    },
    templates(
        r"""
tracker.update({vector})
print(tracker.count, len(tracker.seen))

if {data}:
    tracker.best = {vector}.sum().detach()
    tracker.seen.append('better')

keeper = Keeper({vector})
for step in range(2):
    {v:=vector} = keeper.step({v})
print(keeper.steps)

keeper = Keeper({vector})
if {data}:
    keeper.kept = None
if keeper.kept is None:
    keeper.kept = {vector} * 2
{v:=vector} = keeper.kept + 0

keeper = Keeper({vector})
if {data}:
    keeper.extra = {int}
print(getattr(keeper, 'extra', None))

if {data}:
    del tracker.best
    tracker.best = {vector}.detach().sum()

if {data}:
    tracker.table['last'] = {vector}.detach()
elif 'last' in tracker.table:
    del tracker.table['last']
print(sorted(tracker.table))

log = tracker.log
log.info('tracked %d', tracker.count)

show = functools.partial(print, 'partial', sep='|')
show({vector}.detach(), {int})

write = tracker.write
write('direct', {vector}.sum().item())

{v:=vector} = remembered({v}, {text})
{v} = remembered({v}, {text})

if {data}:
    total = tracker.total
    tracker.total = total + {vector}.detach().sum()
{v:=vector} = {v} + tracker.total

first, last = [], []
for v in {list}[:2]:
    (first if v.sum() > 0 else last).append(v)
print(len(first), len(last))

if {data}:
    made = Keeper({vector})
    made.steps = 5
else:
    made = Keeper({vector} * 2)
{v:=vector} = made.step({v})

whole = {'a': [{vector}], 'n': {int}}
if {data}:
    whole['a'].append({vector})
    whole['n'] += 1
else:
    whole['b'] = ()
print(sorted(whole), len(whole['a']), whole['n'])

state = [0, {vector}]
def visit(v):
    state[0] += 1
    if v.sum() > 0:
        state[1] = v
    return v * state[0]
{v:=vector} = visit({vector}) + visit({vector}) + state[1]

count = 0
def tally(v):
    nonlocal count
    if v.sum() > 0:
        count += 1
    return v
{v:=vector} = tally({vector}) + tally({vector})
print('tally', count)
"""
    ),
)

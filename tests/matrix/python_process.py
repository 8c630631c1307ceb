"""Effects of the standard library: output, files, warnings, exceptions, threads, the process."""

from __future__ import annotations

from typing import Final

from tests.matrix.effect import Effect

OUTPUT: Final = (
    Effect("print: text", "print('a', y.shape)"),
    Effect("print: a tensor", "print(y)"),
    Effect("print: an object that changes", "print(s.l)\ns.l.append(1)", "list(s.l)",
           state="s.l = []"),
    Effect("print: to a file of the program", "print('a', file=s.f)", "s.f.getvalue()",
           state="s.f = io.StringIO()"),
    Effect("print: to a class of the program", "print('a', file=s.o)\ns.o.ops.append('b')",
           "list(s.o.ops)", state="s.o = Writer()", setup="""
class Writer:
    def __init__(self):
        self.ops = []
    def write(self, text):
        self.ops.append(text)
"""),
    Effect("stream: stdout", "sys.stdout.write('text')"),
    Effect("stream: stderr", "sys.stderr.write('text')"),
    Effect("stream: stdout replaced", "sys.stdout = s.f", "sys.stdout is s.f",
           state="s.f = io.StringIO()"),
    Effect("stream: redirect_stdout", "with contextlib.redirect_stdout(s.f):\n    print('in')",
           "s.f.getvalue()", state="s.f = io.StringIO()"),
    Effect("file: StringIO", "s.f.write('b')", "s.f.getvalue()", state="s.f = io.StringIO()"),
    Effect("file: StringIO is read", "s.f.read(1)", "s.f.tell()",
           state="s.f = io.StringIO('abcdefgh')"),
    Effect("file: closed", "s.f.close()", "s.f.closed", state="s.f = io.StringIO()"),
    Effect("file: BytesIO", "s.f.write(b'b')", "s.f.getvalue()", state="s.f = io.BytesIO()"),
    Effect("file: write", "s.f.write('b')\ns.f.flush()", "os.stat(s.f.fileno()).st_size",
           state="s.f = tempfile.TemporaryFile('w')"),
    Effect("file: csv", "s.c.writerow([1, 2])", "s.f.getvalue()",
           state="s.f = io.StringIO()\ns.c = csv.writer(s.f)"),
    Effect("file: pickle", "pickle.dump(len(s.log), s.f)", "s.f.tell()",
           state="s.f = io.BytesIO()"),
    Effect("file: torch.save", "torch.save(s.t, s.f)", "s.f.tell() > 0",
           state="s.f = io.BytesIO()"),
)  # fmt: skip

LOGGING: Final = (
    Effect("logging: info", "LOG.info('seen %s', y.shape)", setup="LOG = logging.getLogger('m')\n"
           "LOG.setLevel(logging.INFO)\n"),
    Effect("logging setup: level", "LOG.setLevel(logging.ERROR)", "LOG.level",
           setup="LOG = logging.getLogger('m')"),
    Effect("logging: level before a record", "LOG.setLevel(logging.INFO)\nLOG.info('now')",
           "LOG.level", setup="LOG = logging.getLogger('m')\nLOG.setLevel(logging.ERROR)"),
    Effect("logging setup: handler", "LOG.addHandler(logging.NullHandler())", "len(LOG.handlers)",
           setup="LOG = logging.getLogger('m')"),
    Effect("logging: filter that counts", "LOG.warning('seen')", "list(COUNTS)", setup="""
LOG = logging.getLogger('m')
COUNTS = []
LOG.addFilter(lambda record: COUNTS.append(1) or True)
"""),
    Effect("logging setup: propagate", "LOG.propagate = False", "LOG.propagate",
           setup="LOG = logging.getLogger('m')"),
    Effect("logging setup: disable", "logging.disable(logging.ERROR)",
           "logging.root.manager.disable"),
    Effect("warnings: warn", "warnings.warn('careful')"),
    Effect("warnings: filter", "warnings.simplefilter('ignore', DeprecationWarning)",
           "warnings.filters[0][0]"),
    Effect("warnings: as an error", "warnings.simplefilter('error')\ntry:\n"
           "    warnings.warn('e')\nexcept UserWarning as e:\n    s.a = str(e)", "s.a",
           state="s.a = ''"),
    Effect("warnings: caught", "with warnings.catch_warnings(record=True) as found:\n"
           "    warnings.warn('c')\ns.a = len(found)", "s.a", state="s.a = 0"),
)  # fmt: skip

EXCEPTIONS: Final = (
    Effect("exception: kept", "try:\n    raise KeyError('k')\nexcept KeyError as e:\n    s.e = e",
           "type(s.e).__name__", state="s.e = None", thing="s.e"),
    Effect("exception object: attribute", "s.e.code = 4", "getattr(s.e, 'code', None)",
           state="s.e = ValueError('v')", thing="s.e"),
    Effect("exception object: args", "s.e.args = ('w', 1)", "s.e.args",
           state="s.e = ValueError('v')",
           thing="s.e"),
    Effect("exception object: note", "s.e.add_note('n')", "list(getattr(s.e, '__notes__', []))",
           state="s.e = ValueError('v')", thing="s.e"),
    Effect("exception: context", "try:\n    try:\n        raise KeyError('k')\n"
           "    finally:\n        raise IndexError('i')\nexcept IndexError as e:\n    s.e = e",
           "repr(getattr(s.e, '__context__', None))", state="s.e = None", thing="s.e"),
    Effect("exception: class that counts", "try:\n    raise Counting()\nexcept Counting:\n"
           "    pass", "len(MADE)", setup="""
MADE = []
class Counting(Exception):
    def __init__(self):
        super().__init__()
        MADE.append(1)
"""),
    Effect("exception: operation that fails", "try:\n    s.l[9]\nexcept IndexError as e:\n"
           "    s.a = str(e)", "s.a", state="s.l = []\ns.a = ''"),
    Effect("context manager: exit stack callback", "s.x.callback(s.log.append, 1)\ns.x.close()",
           "list(s.log)",
           state="s.x = contextlib.ExitStack()"),
    Effect("context manager: exit stack", "s.x.enter_context(contextlib.nullcontext())",
           "len(s.x._exit_callbacks)", state="s.x = contextlib.ExitStack()"),
    Effect("context manager: generator", "with noted(s.log):\n    y = y + 1", "list(s.log)",
           setup="@contextlib.contextmanager\ndef noted(log):\n    log.append('in')\n"
                 "    try:\n        yield\n    finally:\n        log.append('out')\n"),
)  # fmt: skip

THREADS: Final = (
    Effect("lock: acquire", "s.k.acquire(blocking=False)", "s.k.locked()",
           state="s.k = threading.Lock()"),
    Effect("lock: with a store", "with s.k:\n    s.a += 1", "s.a",
           state="s.k = threading.Lock()\ns.a = 0"),
    Effect("lock: nested", "with s.k:\n    with s.r:\n        s.a += 1", "s.a",
           state="s.k = threading.Lock()\ns.r = threading.RLock()\ns.a = 0"),
    Effect("lock: semaphore", "s.k.acquire(blocking=False)", "s.k._value",
           state="s.k = threading.Semaphore(9)"),
    Effect("thread: event", "s.k.set()", "s.k.is_set()", state="s.k = threading.Event()"),
    Effect("thread: queue", "s.q.put(1)", "s.q.qsize()", state="s.q = queue.Queue()"),
    Effect("thread-local: store", "LOCAL.a = 1", "getattr(LOCAL, 'a', 0)",
           setup="LOCAL = threading.local()"),
    Effect("thread-local: new list", "LOCAL.__dict__.setdefault('l', []).append(1)",
           "len(LOCAL.__dict__.get('l', ()))", setup="LOCAL = threading.local()"),
    Effect("thread: started", "t = threading.Thread(target=s.log.append, args=(1,))\n"
           "t.start()\nt.join()", "list(s.log)"),
    Effect("context variable: set", "VAR.set(VAR.get() + 1)", "VAR.get()",
           setup="VAR = contextvars.ContextVar('VAR', default=0)"),
    Effect("context variable: reset", "token = VAR.set(3)\nVAR.reset(token)\ns.a += VAR.get() + 1",
           "(VAR.get(), s.a)", setup="VAR = contextvars.ContextVar('VAR', default=0)",
           state="s.a = 0"),
    Effect("context variable: run", "s.x.run(VAR.set, 5)", "s.x.get(VAR)",
           setup="VAR = contextvars.ContextVar('VAR', default=0)",
           state="s.x = contextvars.copy_context()"),
)  # fmt: skip

PROCESS: Final = (
    Effect("process: environment", "os.environ['MATRIX'] = 'on'", "os.environ.get('MATRIX')"),
    Effect("process: sys.path", "sys.path.append('nowhere')", "sys.path.count('nowhere')"),
    Effect("process: sys.modules", "sys.modules['matrix_new'] = types",
           "'matrix_new' in sys.modules"),
    Effect("process: recursion limit", "sys.setrecursionlimit(sys.getrecursionlimit() + 1)",
           "sys.getrecursionlimit()"),
    Effect("process: gc", "gc.disable()", "gc.isenabled()"),
    Effect("decimal: precision", "decimal.getcontext().prec = 5", "decimal.getcontext().prec"),
    Effect("decimal: flags", "s.a = decimal.Decimal(1) / 3",
           "bool(decimal.getcontext().flags[decimal.Inexact])", state="s.a = 0"),
    Effect("process: atexit", "atexit.register(len, ())", "atexit._ncallbacks()"),
    Effect("random: draw", "s.a = random.random()", "s.a", state="s.a = 0"),
    Effect("random: seed", "random.seed(4)", "random.getstate()[1][:3]"),
    Effect("random: shuffle", "random.shuffle(s.l)", "list(s.l)", state="s.l = [1, 2, 3, 4, 5]"),
    Effect("random generator: own", "s.a = s.r.random()", "(s.a, s.r.getstate()[1][-1])",
           state="s.a = 0\ns.r = random.Random(4)"),
    Effect("random: numpy", "s.a = float(numpy.random.rand())", "s.a", state="s.a = 0"),
    Effect("random generator: numpy", "s.a = float(s.r.random())", "s.a",
           state="s.a = 0\ns.r = numpy.random.default_rng(4)"),
    Effect("buffer: struct", "struct.pack_into('i', s.b, 0, 7)", "bytes(s.b)",
           state="s.b = bytearray(4)"),
    Effect("process: copyreg", "copyreg.pickle(Counted, repr)",
           "Counted in copyreg.dispatch_table",
           setup="class Counted:\n    pass\n"),
)  # fmt: skip

EFFECTS: Final = (*OUTPUT, *LOGGING, *EXCEPTIONS, *THREADS, *PROCESS)

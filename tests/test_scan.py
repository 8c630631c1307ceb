"""Scanning files: what is found in each kind of file, and what a broken one costs."""

from __future__ import annotations

import dis
import importlib.util
import inspect
import io
import json
import marshal
import os
import py_compile
import random
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import CodeType

import pytest

from bcmend import cli
from bcmend.scan import planned_sites, reading_process
from bcmend.scan.found_sites import UnreadableFile
from bcmend.scan.progress import shown
from bcmend.scan.scanner import scan

ROOT = Path(__file__).parents[1]

PROGRAM = """\
import a_module_that_must_not_be_imported

class Net:
    def forward(self, x, mask=None):
        if mask is not None:
            x = x + mask
        if x.sum() > 0:
            x = x + 1
        else:
            x = x - 1
        if x.min() < 0:
            raise ValueError("negative")
        print("a", x if mask is None else [str(each) for each in x])
        self.log.warning("b %s", x.mean(), stacklevel=2)
        print(*x)
        keep(print(x))
        kept = print(x)
        return x

def values(x):
    if x.any() > 0:
        yield x

def outer(x):
    class Inner:
        def method(self, y):
            print(y)
    return Inner
"""

BRANCH, GUARD, PRINT, LOG, UNPACKED, GENERATOR, INNER = 7, 11, 13, 14, 15, 21, 27
OUTPUTS = {PRINT, LOG, UNPACKED}
USED = {16, 17}  # prints whose result is used

OTHERS = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")


@pytest.fixture
def program(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    return file


def _at(sites, line):
    (found,) = [site for site in sites if site.line == line]
    return found


def _interpreter(version: str) -> str | None:
    """Find a working Python of that version, on the path or among pyenv's."""
    root = os.environ.get("PYENV_ROOT")
    places = sorted(Path(root, "versions").glob(f"{version}.*/bin")) if root else []
    found = [shutil.which(f"python{version}", path=str(place)) for place in places]
    for candidate in [*found, shutil.which(f"python{version}")]:
        if candidate and subprocess.run([candidate, "-c", ""], capture_output=True).returncode == 0:
            return candidate
    return None


def _compiled_by(version: str, source: Path) -> Path:
    """Compile a file by another Python; skips the test where there is none of that version."""
    if version == "{}.{}".format(*sys.version_info):
        pytest.skip("this very Python")
    interpreter = _interpreter(version)
    if interpreter is None:
        pytest.skip(f"no Python {version} here")
    compiled = source.with_suffix(".pyc")
    compiling = "import py_compile, sys; py_compile.compile(sys.argv[1], sys.argv[2], doraise=True)"
    subprocess.run([interpreter, "-c", compiling, str(source), str(compiled)], check=True)
    return compiled


def _check_planned(sites, file):
    assert {site.file for site in sites} == {str(file)}
    assert {site.python for site in sites} == {"{}.{}".format(*sys.version_info)}
    planned = {
        (site.line, site.function, site.kind, site.lowering)
        for site in sites
        if site.status == "planned"
    }
    assert planned >= {
        (BRANCH, "Net.forward", "branch", "branch"),
        (GUARD, "Net.forward", "guard", "guard"),
        (LOG, "Net.forward", "output", "output"),
        (UNPACKED, "Net.forward", "output", "output"),
        (INNER, "outer.<locals>.Inner.method", "output", "output"),
    }
    jump = _at(sites, GENERATOR)
    assert (jump.status, jump.lowering, jump.refusal) == ("planned", "truth", None)
    assert jump.function == "values"
    lines = {BRANCH, GUARD, *OUTPUTS, *USED, GENERATOR, INNER}
    assert {site.line for site in sites} == lines


def test_a_source_file_is_planned(program):
    found = scan([str(program)])
    assert (found.files, found.warnings) == (1, ())
    _check_planned(found.sites, program)


@pytest.mark.parametrize("mode", py_compile.PycInvalidationMode, ids=lambda mode: mode.name)
def test_a_compiled_file_of_this_python_is_planned_without_its_source(program, mode):
    compiled = program.with_suffix(".pyc")
    py_compile.compile(str(program), cfile=str(compiled), doraise=True, invalidation_mode=mode)
    program.unlink()
    found = scan([str(compiled)])
    assert (found.files, found.warnings) == (1, ())
    _check_planned(found.sites, compiled)


@pytest.mark.parametrize("version", OTHERS)
def test_a_compiled_file_of_another_python_has_candidates(program, version):
    compiled = _compiled_by(version, program)
    found = scan([str(compiled)])
    assert found.warnings == ()
    assert {(site.status, site.python) for site in found.sites} == {("candidate", version)}
    assert {(site.lowering, site.refusal) for site in found.sites} == {(None, None)}
    assert [(site.line, site.function, site.kind) for site in found.sites] == [
        (BRANCH, "Net.forward", "branch"),
        (GUARD, "Net.forward", "branch"),
        (PRINT, "Net.forward", "output"),
        (LOG, "Net.forward", "output"),
        (UNPACKED, "Net.forward", "output"),
        (GENERATOR, "values", "branch"),
        (INNER, "outer.<locals>.Inner.method", "output"),
    ]


ARGUMENTS = (
    "f'{x:.2f} {x!r}'",
    "x or 3, x and 4",
    "x.a if x else x.b if y else x.c",
    "lambda q=3: (x, q)",
    "[each for each in x if each > 1]",
    "max(each for each in x)",
    "'a', *x, **y",
    "{'a': x, 'b': y}, x[1:2], -x, (x, y), x @ y",
    "x[0].b.c(3)(4)",
    "x, file=y",
)


@pytest.mark.parametrize("version", OTHERS)
def test_a_candidate_s_arguments_may_be_any_expression(tmp_path, version):
    lines = [f"    print({argument})" for argument in ARGUMENTS]
    file = tmp_path / "arguments.py"
    file.write_text("\n".join(["def f(x, y):", *lines, "    keep(print(x))", ""]))
    found = scan([str(_compiled_by(version, file))])
    outputs = [site.line for site in found.sites if site.kind == "output"]
    assert outputs == [2 + position for position in range(len(ARGUMENTS))]


BROKEN = {
    "syntax error": ("bad.py", b"def f(:\n", "line 1: syntax error"),
    "no text": ("bad.py", b"x = '\xff'\n", "syntax error"),
    "null bytes": ("bad.py", b"x = 1\0\n", ""),
    "empty": ("bad.pyc", b"", "broken or unknown .pyc file"),
    "another format": ("bad.pyc", b"\x7fELF" + bytes(100), "broken or unknown .pyc file"),
    "cut short": ("bad.pyc", importlib.util.MAGIC_NUMBER + bytes(12) + b"\xe3", "broken .pyc file"),
    "no code": (
        "bad.pyc",
        importlib.util.MAGIC_NUMBER + bytes(12) + marshal.dumps(3),
        "broken .pyc file: holds no code",
    ),
    "another Python's, cut short": (
        "bad.pyc",
        (3413).to_bytes(2, "little") + b"\r\n" + bytes(12) + b"\xe3" + bytes(60),
        "broken or unknown .pyc file",
    ),
    "an old Python's": (
        "bad.pyc",
        (62211).to_bytes(2, "little") + b"\r\n" + bytes(4) + b"N" + bytes(60),
        "made by Python 2.7, which is not read",
    ),
}


@pytest.mark.parametrize("name, data, expected", BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_one_warning_and_the_scan_goes_on(program, capsys, name, data, expected):
    broken = program.with_name(name)
    broken.write_bytes(data)
    assert cli.main(["scan", str(broken), str(program)]) == 1
    printed = capsys.readouterr()
    assert printed.err.startswith(f"bcmend: warning: {broken}: ")
    assert expected in printed.err
    assert printed.err.count("\n") == 1
    assert f"{program}:{BRANCH} " in printed.out
    assert printed.out.endswith("; 1 file could not be read\n")


def test_bytes_that_stand_for_nothing_are_one_warning(tmp_path):
    module = compile("def f(a):\n    return 1 if a.sum() > limit else 2\n", "m.py", "exec")
    (code,) = (each for each in module.co_consts if isinstance(each, CodeType))
    data = bytearray(code.co_code)
    data[data.index(dis.opmap["LOAD_GLOBAL"]) + 1] = 200
    broken = module.replace(co_consts=(code.replace(co_code=bytes(data)), *module.co_consts[1:]))
    path = tmp_path / "m.pyc"
    path.write_bytes(importlib.util.MAGIC_NUMBER + bytes(12) + marshal.dumps(broken))
    (warning,) = scan([str(path)]).warnings
    assert "f cannot be planned" in warning
    assert "stands for nothing" in warning


def test_a_function_that_cannot_be_planned_is_one_warning(program, monkeypatch):
    real = planned_sites.mend

    def fails_once(code, context):
        if code.co_name == "forward":
            raise ValueError("cannot\nbe read")
        return real(code, context)

    monkeypatch.setattr(planned_sites, "mend", fails_once)
    sites, warnings = planned_sites.sites_in(program.read_bytes(), str(program))
    assert warnings == [f"{program}:4: Net.forward cannot be planned: cannot be read"]
    assert [site.line for site in sites] == [GENERATOR, INNER]


def test_a_folder_is_walked_and_each_source_is_counted_once(program):
    folder = program.parent
    py_compile.compile(str(program), doraise=True)
    assert list(folder.glob("__pycache__/*.pyc"))
    (folder / "inner").mkdir()
    (folder / "inner" / "second.py").write_text("def f(x):\n    print(x)\n")
    alone = folder / "inner" / "alone.pyc"
    py_compile.compile(str(folder / "inner" / "second.py"), cfile=str(alone), doraise=True)
    (folder / ".hidden").mkdir()
    shutil.copy(program, folder / ".hidden")
    (folder / "notes.txt").write_text("def f(:")
    found = scan([str(folder), str(program)])
    assert found.files == 3
    assert {site.file for site in found.sites} == {
        str(program), str(alone), str(folder / "inner" / "second.py")
    }  # fmt: skip


def test_a_line_names_file_line_function_kind_and_outcome(program, capsys):
    assert cli.main(["scan", str(program)]) == 0
    lines = capsys.readouterr().out.splitlines()
    shown = [line.split() for line in lines]
    assert [f"{program}:{BRANCH}", "Net.forward", "branch", "planned"] in shown
    assert [f"{program}:{GENERATOR}", "values", "branch", "planned", "truth"] in shown
    statuses = [words[3] for words in shown[:-1]]
    assert statuses == ["planned"] * 9
    assert lines[-1] == "9 sites in 1 file: 9 planned"


def test_a_terminal_gets_a_table(program):
    from rich.console import Console

    console = Console(width=300, file=io.StringIO())
    console.print(scan([str(program)]))
    shown = console.file.getvalue()
    assert "how or why" in shown
    assert f"{program}:{GUARD}" in shown


def test_json_holds_sites_and_warnings(program, capsys):
    broken = program.with_name("broken.py")
    broken.write_text("(")
    assert cli.main(["scan", "--json", str(program), str(broken)]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["files"], document["unread"]) == (2, 1)
    (warning,) = document["warnings"]
    assert warning.startswith(f"{broken}: line 1: syntax error")
    (guard,) = [site for site in document["sites"] if site["line"] == GUARD]
    assert guard == {
        "file": str(program),
        "line": GUARD,
        "function": "Net.forward",
        "kind": "guard",
        "status": "planned",
        "lowering": "guard",
        "refusal": None,
        "detail": "",
        "python": "{}.{}".format(*sys.version_info),
    }


def test_where_there_is_nothing_to_scan_the_status_is_1(tmp_path, capsys):
    assert cli.main(["scan", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert printed.out == "0 sites in 0 files\n"
    assert printed.err == "bcmend: warning: there is no .py or .pyc file to scan\n"


def _damaged(data: bytes, source: random.Random) -> bytes:
    """Flip bits, cut off the end, or replace bytes behind the header."""
    changed = bytearray(data)
    for _ in range(source.randint(1, 8)):
        place = source.randrange(16, len(changed))
        match source.randrange(3):
            case 0:
                changed[place] ^= 1 << source.randrange(8)
            case 1:
                changed[place : place + 4] = source.randbytes(4)
            case _ if source.random() < 0.3:
                del changed[max(place, 20) :]
    return bytes(changed)


def test_damaged_files_are_their_own_warnings(program):
    folder, whole = program.parent / "damaged", program.with_suffix(".pyc")
    folder.mkdir()
    py_compile.compile(str(program), cfile=str(whole), doraise=True)
    standard = compile(Path(inspect.__file__).read_bytes(), "inspect.py", "exec")
    good = [whole.read_bytes(), whole.read_bytes()[:16] + marshal.dumps(standard)]
    for seed in range(300):
        source = random.Random(seed)
        (folder / f"{seed}.pyc").write_bytes(_damaged(good[seed % 10 == 0], source))
    shutil.copy(whole, folder / "whole.pyc")
    found = scan([str(folder)])
    assert found.files == 301
    assert 0 < found.unread <= len(found.warnings)
    assert all(line.startswith(str(folder)) and line.isprintable() for line in found.warnings)
    alone = scan([str(whole)]).sites
    _check_planned([each for each in found.sites if "whole" in each.file], folder / "whole.pyc")
    assert len([each for each in found.sites if "whole" in each.file]) == len(alone)
    str(found).encode()


@pytest.mark.parametrize(
    "does, expected",
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "reading it ends the process (SIGSEGV)"),
        ("time.sleep(100)", "reading it takes more than 3 s"),
        ("raise MemoryError", "cannot be read: MemoryError"),
    ],
)
def test_a_file_that_ends_the_process_costs_no_other(program, monkeypatch, does, expected):
    """The process reads with a planner that does to some what only CPython's faults do."""
    prepared = f"""
import os, signal, time
from bcmend.scan import planned_sites, reading_process
def inner(data, *others, real=planned_sites._sites_in):
    if b"bad" in data:
        {does}
    return real(data, *others)
planned_sites._sites_in = inner
"""
    monkeypatch.setattr(
        reading_process, "_MAIN", reading_process._MAIN.replace("serve()", "") + prepared
        + "reading_process.serve()\n",
    )  # fmt: skip
    data = program.read_bytes()
    with reading_process.ReadingProcess(seconds=3.0) as process:
        assert process.sites_in(data, "good.py")[0]
        with pytest.raises(UnreadableFile, match=re.escape(expected)):
            process.sites_in(data + b"# bad", "bad.py")
        assert process.sites_in(data, "good.py")[0]


@pytest.mark.parametrize("ending", [".whl", ".zip"])
def test_members_of_an_archive_are_scanned(program, ending, capsys):
    archive = program.with_name(f"an_archive{ending}")
    compiled = program.with_suffix(".pyc")
    py_compile.compile(str(program), cfile=str(compiled), doraise=True)
    with zipfile.ZipFile(archive, "w") as opened:
        opened.write(program, "package/program.py")
        opened.write(compiled, "package/__pycache__/program.cpython-311.pyc")
        opened.write(compiled, "package/alone.pyc")
        opened.writestr("package/data.txt", "text")
        opened.writestr("package/bad.py", "def f(:\n")
        opened.writestr(".hidden/program.py", PROGRAM)
    found = scan([str(archive)])
    assert (found.files, found.unread) == (3, 1)
    assert {site.file for site in found.sites} == {
        f"{archive}/package/program.py", f"{archive}/package/alone.pyc"
    }  # fmt: skip
    (warning,) = found.warnings
    assert warning.startswith(f"{archive}/package/bad.py: line 1: syntax error")
    compiled.unlink()
    assert scan([str(program.parent)]).files == found.files + 1


def test_a_damaged_archive_is_a_warning(program, capsys):
    empty, bad = program.with_name("empty.whl"), program.with_name("bad.zip")
    empty.write_bytes(b"PK nothing")
    with zipfile.ZipFile(bad, "w") as opened:
        opened.writestr("m.py", PROGRAM)
    data = bytearray(bad.read_bytes())
    data[100] ^= 255
    bad.write_bytes(data)
    assert cli.main(["scan", str(empty), str(bad), str(program)]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"bcmend: warning: {empty}: ")
    assert second.startswith(f"bcmend: warning: {bad}/m.py: ")


def test_progress_is_told_after_each_file(program):
    shutil.copy(program, program.with_name("second.py"))
    told = []
    scan([str(program.parent)], lambda *done: told.append(done))
    assert told == [(1, 2), (2, 2)]


def test_progress_is_shown_on_a_terminal_alone_and_not_at_once(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    for terminal, after in (("0", 0.0), ("1", 1000.0)):
        monkeypatch.setenv("FORCE_COLOR", terminal) if terminal == "1" else None
        with shown(after) as progress:
            progress(1, 2)
    assert stream.getvalue() == ""
    with shown(0.0) as progress:
        progress(1, 2)
    assert "1/2" in stream.getvalue()


def test_no_name_makes_the_output_unprintable(tmp_path, capsys):
    module = compile("def f(x):\n    print(x)\n", "m.py", "exec")
    (code,) = (each for each in module.co_consts if isinstance(each, CodeType))
    named = code.replace(co_qualname="a\udc80\x1b[31m\nb")
    path = tmp_path / "m.pyc"
    path.write_bytes(
        importlib.util.MAGIC_NUMBER
        + bytes(12)
        + marshal.dumps(module.replace(co_consts=(named, *module.co_consts[1:])))
    )
    assert cli.main(["scan", str(path)]) == 0
    row, _ = capsys.readouterr().out.splitlines()
    assert r"a\udc80\x1b[31m\nb" in row


@pytest.mark.parametrize("name", ["missing.py", "missing", "notes.txt"])
def test_a_bad_path_is_one_line_and_exit_code_2(program, capsys, name):
    program.with_name("notes.txt").write_text("text")
    assert cli.main(["scan", str(program), str(program.with_name(name))]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("bcmend: error: n")
    assert name in printed.err
    assert printed.err.count("\n") == 1


def test_a_path_is_required(capsys):
    assert cli.main(["scan"]) == 2
    assert "required: PATH" in capsys.readouterr().err


def test_doubtful_source_is_no_warning_and_no_error(tmp_path, recwarn):
    file = tmp_path / "doubtful.py"
    file.write_text("def f(x):\n    print('\\d', x)\n")
    found = scan([str(file)])
    assert [site.line for site in found.sites] == [2]
    assert not recwarn.list


def test_neither_torch_nor_the_file_is_imported(program):
    program.write_text("import torch\n" + PROGRAM)
    check = (
        "import sys; from bcmend import cli; code = cli.main(['scan', sys.argv[1]]); "
        "sys.exit(code or 'torch' in sys.modules or 'program' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", check, str(program)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "Net.forward" in done.stdout

"""The command line: what each command prints, and one line and exit code 2 for wrong input."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import subprocess
import sys
import urllib.parse
import urllib.request
import webbrowser
from pathlib import Path

import pytest

import bcmend
from bcmend import cli
from bcmend.reasons import REASONS
from bcmend.reports import steps
from bcmend.reports.benchmark import Measured
from tests.benchmarks import benchmark
from tests.registrations import registrations_undone

ROOT = Path(__file__).parents[1]

MODEL = """
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x + 1
        return x - 1

net = Net()
number = 3
"""


@pytest.fixture
def model_module(tmp_path, monkeypatch):
    """A module called `cli_model` that can be imported from the working directory."""
    (tmp_path / "cli_model.py").write_text(MODEL)
    (tmp_path / "cli_broken.py").write_text("raise RuntimeError('two\\nlines')\n")
    monkeypatch.chdir(tmp_path)
    yield
    for name in ("cli_model", "cli_broken", "cli_differs", "cli_opens"):
        sys.modules.pop(name, None)


def test_a_report_is_a_table(model_module, capsys):
    assert cli.main(["report", "cli_model:net"]) == 0
    shown = capsys.readouterr().out
    assert "Net.forward" in shown
    assert "branch" in shown


def test_a_report_can_be_json(model_module, capsys):
    assert cli.main(["report", "cli_model:net", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [site["function"] for site in document["sites"]] == ["Net.forward"]


def test_without_a_command_the_help_is_shown(capsys):
    assert cli.main([]) == 0
    assert "explain" in capsys.readouterr().out


def _commands():
    return next(filter(None, (each.choices for each in cli._parser()._actions)))


@pytest.mark.parametrize("command", _commands())
def test_the_help_of_a_command_has_examples_that_can_be_parsed(command, capsys):
    with pytest.raises(SystemExit):
        cli.main([command, "--help"])
    text = capsys.readouterr().out.partition("Examples:\n")[2]
    examples = [shlex.split(each) for each in text.splitlines()]
    assert 1 <= len(examples) <= 3
    for program, *given in examples:
        assert program == "bcmend" and cli._parser().parse_args(given).command == command


def test_a_report_of_a_call_is_of_what_was_traced(model_module, capsys):
    assert cli.main(["report", "cli_model:Net", "--call", "torch.ones(2)", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [site["status"] for site in document["sites"]] == ["mended"]


@pytest.mark.parametrize("name", ["report.html", "report.json", "report.txt"])
def test_output_goes_to_a_file_in_the_form_of_its_name(model_module, capsys, tmp_path, name):
    assert cli.main(["report", "cli_model:net", "-o", name]) == 0
    assert capsys.readouterr().out == ""
    text = (tmp_path / name).read_text(encoding="utf-8")
    begins = {"html": "<!doctype html>", "json": "{", "txt": "bcmend: Net"}
    assert text.startswith(begins[name.rpartition(".")[2]])


def test_a_page_is_shown_in_a_browser(model_module, capsys, monkeypatch):
    shown = []
    monkeypatch.setattr(webbrowser, "open", shown.append)
    assert cli.main(["report", "cli_model:net", "--open"]) == 0
    (address,) = shown
    file = Path(urllib.request.url2pathname(urllib.parse.urlparse(address).path))
    assert file.read_text(encoding="utf-8").startswith("<!doctype html>")
    file.unlink()


def test_a_file_that_cannot_be_written_is_one_line(model_module, capsys):
    assert cli.main(["report", "cli_model:net", "-o", "no/such/folder.html"]) == 2
    assert "cannot write" in capsys.readouterr().err


def test_a_report_can_be_a_page_or_have_every_site(model_module, capsys):
    assert cli.main(["report", "cli_model:net", "--html"]) == 0
    assert capsys.readouterr().out.startswith("<!doctype html>")
    assert cli.main(["report", "cli_model:net", "--all"]) == 0
    shown = capsys.readouterr().out
    assert "cli_model.py" in shown and "Policy(mend='ahead')" in shown


def test_bytecode_is_shown_before_and_after(model_module, capsys):
    assert cli.main(["dis", "cli_model:Net"]) == 0
    shown = capsys.readouterr().out
    assert "if x.sum() > 0:" in shown and "+ " in shown
    assert cli.main(["dis", "cli_model:Net", "--html"]) == 0
    assert "Bytecode, before and after" in capsys.readouterr().out
    assert cli.main(["dis", "torch.nn:Identity"]) == 0
    assert capsys.readouterr().out == "bcmend writes no new bytecode for it\n"


def test_a_report_leaves_nothing_patched(model_module, monkeypatch):
    monkeypatch.syspath_prepend(".")
    cli_model = importlib.import_module("cli_model")

    before = cli_model.Net.forward.__code__
    assert cli.main(["report", "cli_model:Net"]) == 0
    assert cli_model.Net.forward.__code__ is before


WRONG = {
    "unknown command": (["mend"], "invalid choice: 'mend'"),
    "unknown option": (["demo", "--fast"], "unrecognized arguments: --fast"),
    "no target": (["report"], "required: MODULE:ATTRIBUTE"),
    "no colon": (["report", "cli_model"], "expected MODULE:ATTRIBUTE, got 'cli_model'"),
    "no attribute": (["report", "cli_model:"], "expected MODULE:ATTRIBUTE, got 'cli_model:'"),
    "no such module": (["report", "cli_nowhere:x"], "cannot import 'cli_nowhere'"),
    "no such attribute": (["report", "cli_model:nope"], "no attribute 'nope'"),
    "a module that fails": (["report", "cli_broken:x"], "cannot import 'cli_broken': two"),
    "no arguments": (["why", "cli_model:Net", "--call", "x y"], "cannot make a call"),
    "an explanation of nothing": (["explain", "cli_model:Net"], "missing a required argument"),
    "no such back end": (
        ["explain", "cli_model:net", "--call", "1", "--backend", "nothing"],
        "torch has no back end 'nothing'",
    ),
    "nothing to measure": (
        ["bench", "cli_model:nope", "--call", "1"],
        "no attribute 'nope'",
    ),
    "no time to measure": (
        ["bench", "cli_model:net", "--call", "1", "--seconds", "0"],
        "takes a positive number of seconds, got 0",
    ),
    "no run to verify": (
        ["verify", "cli_model:net", "--call", "1", "--runs", "0"],
        "takes a positive number of calls, got 0",
    ),
    "two forms": (
        ["explain", "cli_model:net", "--json", "--format", "github"],
        "argument --format: not allowed with argument --json",
    ),
    "a form that there is not": (["verify", "a:b", "--format", "svg"], "invalid choice: 'svg'"),
    "a schema of nothing": (["schema", "demo"], "invalid choice: 'demo'"),
    "nothing to call": (["why", "cli_model:number"], "cannot patch cli_model:number"),
    "not a model": (["report", "cli_model:number"], "cannot patch cli_model:number"),
}


@pytest.mark.parametrize("arguments, expected", WRONG.values(), ids=WRONG)
def test_wrong_input_is_one_line_and_exit_code_2(
    model_module, capsys, monkeypatch, arguments, expected
):
    monkeypatch.setattr(steps, "_LONG", 600)  # a busy machine says what takes it so long
    assert cli.main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("bcmend: error: ")
    assert expected in printed.err
    assert printed.err.count("\n") == 1


def test_an_import_that_fails_leaves_the_import_path_alone(model_module):
    before = sys.path[:]
    cli.main(["report", "cli_broken:x"])
    assert sys.path == before


def test_the_version_is_printed(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("bcmend ")


def test_every_reason_is_on_the_page(capsys):
    assert cli.main(["reasons"]) == 0
    page = capsys.readouterr().out
    for reason in REASONS.values():
        assert f"## {reason.slug}\n\n{reason.meaning}\n\n*What to do:* {reason.hint}\n" in page


def test_the_documentation_of_refusals_is_up_to_date():
    assert (ROOT / "docs" / "refusals.md").read_text(encoding="utf-8") == cli.reasons_page()


def test_the_command_line_needs_no_torch_for_its_reasons():
    program = (
        "import sys; from bcmend import cli; "
        "code = cli.main(['reasons']); sys.exit(code or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_the_module_runs_the_command_line():
    done = subprocess.run(
        [sys.executable, "-m", "bcmend", "mend"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.startswith("bcmend: error: ")


def test_a_reader_may_stop_reading(model_module):
    command = [sys.executable, "-m", "bcmend", "reasons"]
    started = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    started.stdout.close()
    assert started.stderr.read() == ""
    assert started.wait() == 0
    started.stderr.close()


def test_the_demo_says_what_is_missing(monkeypatch, capsys):
    pytest.importorskip("torch")
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert cli.main(["demo"]) == 2
    printed = capsys.readouterr().err
    assert "pip install 'bcmend[hf]'" in printed
    assert printed.count("\n") == 1


@pytest.mark.slow
def test_the_demo_ends_well(capsys):
    pytest.importorskip("transformers")
    assert cli.main(["demo"]) == 0
    shown = capsys.readouterr().out
    assert "Stock torch.compile: 8 graphs, 7 breaks" in shown
    assert "Mended, compiled with fullgraph=True: 1 graph." in shown
    assert re.search(r"log records equal: yes.*logged:\n +WARNING: .*past_key_values", shown)
    assert re.search(r"^ +mended +[\d.]+ s +[\d.]+ ms +[\d.]+ times$", shown, re.MULTILINE)


def test_the_demo_shows_what_could_not_be_timed(monkeypatch, capsys):
    pytest.importorskip("torch")
    from bcmend import demo
    from bcmend.reports.benchmark import Benchmark, Measured, Spread

    later = Spread(0.002, 0.002, 0.002, 5)
    sides = (Measured(later, 0.01), Measured(raised="CppCompileError: none"), Measured(later, 20.0))
    found = Benchmark("Net", "2.13", "inductor", False, False, False, "cpu", 1, True, True, *sides)
    monkeypatch.setattr(demo.bcmend, "bench", lambda *arguments, **named: found)
    demo._print_times(None, {})
    shown = capsys.readouterr().out
    assert "stock torch.compile  CppCompileError: none" in shown
    assert re.search(r"^ +mended +20 s +2 ms +1.00 times$", shown, re.MULTILINE)

    def fail(*arguments, **named):
        raise bcmend.BcmendError("no compiler")

    monkeypatch.setattr(demo.bcmend, "bench", fail)
    demo._print_times(None, {})
    assert capsys.readouterr().out == "\nTimes were not measured: no compiler\n"


def test_why_says_what_a_call_was_traced_for(model_module, capsys):
    assert cli.main(["why", "cli_model:Net", "--call", "torch.ones(3)"]) == 0
    shown = capsys.readouterr().out
    assert "torch captures the code as it is" in shown and "captured" in shown.splitlines()[-1]
    assert cli.main(["why", "cli_model:net", "--call", "x=torch.ones(3)", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["traces"]


def test_why_shows_what_was_traced_until_the_call_has_failed(model_module, capsys):
    target = ["why", "cli_model:Net", "--call", "'text'"]
    for more, status in (([], 2), (["--expect-error"], 0)):
        assert cli.main([*target, *more]) == status
        shown = capsys.readouterr()
        assert "the call raised" in shown.err and shown.out.startswith("bcmend: ")


def test_a_benchmark_is_text_json_or_a_page(monkeypatch, capsys):
    benching = pytest.importorskip("bcmend.trials.benching")
    found, given = benchmark(), []

    def measured(make, **chosen):
        given.append(chosen)
        return found

    monkeypatch.setattr(benching, "bench_made", measured)
    target = ["bench", "cli_model:Net", "--call", "torch.ones(3)"]
    assert cli.main([*target, "--train", "--seconds", "5"]) == 0
    shown = capsys.readouterr()
    assert shown.out == f"{found}\n" and shown.err == ""  # no progress on what is no terminal
    assert given == [{"train": True, "backend": "inductor", "seconds": 5.0}]
    assert cli.main([*target, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found.to_dict()
    assert cli.main([*target, "--html"]) == 0
    assert capsys.readouterr().out == f"{found.to_html()}\n"


def test_a_benchmark_ends_with_2_where_the_call_raises_and_1_where_it_does_mended(monkeypatch):
    benching = pytest.importorskip("bcmend.trials.benching")
    raised = Measured(raised="ValueError: no")
    target = ["bench", "cli_model:Net"]
    for sides, more, status in (
        ({"eager": raised, "stock": raised, "mended": raised}, [], 2),
        ({"stock": raised}, [], 2),
        ({"mended": raised}, [], 1),
        ({"eager": raised, "stock": raised, "mended": raised}, ["--expect-error"], 0),
    ):
        found = benchmark(**sides)
        monkeypatch.setattr(benching, "bench_made", lambda make, found=found, **_: found)
        assert cli.main([*target, *more]) == status


@pytest.mark.slow
def test_a_benchmark_is_measured_in_new_processes(model_module, capsys):
    call = ["--call", "torch.ones(3, requires_grad=True)", "--backend", "eager", "--train"]
    assert cli.main(["bench", "cli_model:Net", *call, "--seconds", "0.5"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "mended: one graph instead of 2"


@pytest.mark.parametrize("command", ["verify", "explain"])
def test_a_call_that_raises_ends_with_2_unless_it_is_to(model_module, capsys, command):
    call = ["--call", "torch.ones(3, dtype=torch.complex64)", "--backend", "eager"]
    target = [command, "cli_model:Net", *call]
    assert cli.main(target) == 2
    assert "NotImplementedError" in capsys.readouterr().out
    assert cli.main([*target, "--expect-error"]) == 0


def test_an_explanation_is_text_json_or_a_page(model_module, capsys):
    target = ["explain", "cli_model:Net", "--call", "torch.ones(3)", "--backend", "eager"]
    assert cli.main(target) == 0
    assert "if x.sum() > 0:" in capsys.readouterr().out
    assert cli.main([*target, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["stock"]["breaks"] == 1
    for command in ("explain", "verify"):
        assert cli.main([command, *target[1:], "--html"]) == 0
        assert capsys.readouterr().out.startswith("<!doctype html>")


def test_a_break_that_stays_ends_with_1_where_it_is_to_fail(model_module, capsys):
    Path("cli_opens.py").write_text(
        "def opens(x):\n    y = x + 1\n    open(__file__)\n    return y\n"
    )
    quick = ["--call", "torch.ones(3)", "--backend", "eager", "--format", "github"]
    target = ["explain", "cli_opens:opens", *quick]
    assert cli.main(target) == 0
    assert cli.main([*target, "--fail-on-break"]) == 1
    first, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("::error file=cli_opens.py,line=3,title=graph break%3A GB")
    mended = ["explain", "cli_model:Net", *quick]
    assert cli.main([*mended, "--fail-on-break"]) == 0
    assert capsys.readouterr().out.startswith("::notice title=bcmend%3A Net::")


def test_verifying_ends_with_0_where_calls_are_equal_and_1_where_not(model_module, capsys):
    target = ["verify", "cli_model:Net", "--call", "torch.ones(3, requires_grad=True)", "--train"]
    assert cli.main(target) == 0
    assert "equal in 2 calls, with gradients" in capsys.readouterr().out
    differing = """
import bcmend, cli_model

def step(x):
    return x * 2

bcmend.register_capture(step, lambda x: x * 3)

class Other(cli_model.Net):
    def forward(self, x):
        return step(super().forward(x))
"""
    Path("cli_differs.py").write_text(differing)
    other = ["verify", "cli_differs:Other", "--call", "torch.ones(3)"]
    with registrations_undone():
        assert cli.main([*other, "--json"]) == 1
        assert json.loads(capsys.readouterr().out)["difference"]["aspect"] == "result"
        assert cli.main([*other, "--format", "github"]) == 1
    assert capsys.readouterr().out.startswith("::error title=bcmend%3A Other::bcmend: Other: diff")

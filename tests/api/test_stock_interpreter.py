"""bf16 on the CPU: a right kernel is judged right in the corrected interpreter and refused, not failed, in Triton's own."""

import functools
import inspect
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import flashverify

HERE = Path(__file__).parent
pytestmark = pytest.mark.slow


def process(code: str, *, interpret: bool) -> str:
    """What code prints in a process of its own, in which triton is not imported."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    if interpret:
        environment["TRITON_INTERPRET"] = "1"
    environment["PYTHONPATH"] = os.pathsep.join([str(HERE), *(path for path in sys.path if path)])
    source = "import pytest, torch\nimport flashverify\nfrom flashverify import assert_attention_close\n"
    command = (sys.executable, "-c", source + textwrap.dedent(code))
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


EACH = """
import json, sys, traceback
said = {}
for name, code in json.loads(%r).items():
    try:
        exec(code, dict(globals()))
        said[name] = ""
    except BaseException:
        said[name] = traceback.format_exc()
print(json.dumps(said))
"""
JUDGED = """
import triton, triton.language
from bf16_kernel import attend, inputs

q, k, v = inputs()
s = q.double() @ k.double().mT / 4
o, lse = (torch.softmax(s, -1) @ v.double()).bfloat16(), s.logsumexp(-1).float()
assert_attention_close(q, k, v, o=o, lse=lse)
"""
# One process runs each in this order: nothing is launched before the kernel is.
INTERPRETING = {
    "outputs_of_torch_are_judged_where_triton_was_merely_imported": JUDGED,
    "unknown_numerics_and_a_second_interpreter_are_refused": """
with pytest.raises(flashverify.UsageError, match="numerics='b200' is not accepted"):
    with flashverify.corrected_interpreter(numerics="b200"):
        pass
with flashverify.corrected_interpreter(), pytest.raises(flashverify.UsageError, match="open already"):
    with flashverify.corrected_interpreter():
        pass
""",
    "triton_s_own_interpreter_is_refused_with_advice_and_the_corrected_one_is_right": r"""
from bf16_kernel import attention, inputs

tensors = inputs()
o, lse = attention(*tensors)
with pytest.raises(flashverify.UsageError, match="with flashverify.corrected_interpreter"):
    assert_attention_close(*tensors, o=o, lse=lse)
with pytest.raises(AssertionError, match="outside its bounds"):  # the right kernel that would be called wrong
    assert_attention_close(*tensors, o=o, lse=lse, not_interpreted=True)
with flashverify.corrected_interpreter():
    with pytest.raises(flashverify.UsageError):  # nothing ran in it
        assert_attention_close(*tensors, o=o, lse=lse)
    o, lse = attention(*tensors)
    assert_attention_close(*tensors, o=o, lse=lse)
    wrong = o.clone()
    wrong[0, 0, 3, 5] += 0.25
    with pytest.raises(AssertionError, match=r"o\[0, 0, 3, 5\]"):
        assert_attention_close(*tensors, o=wrong, lse=lse)
assert_attention_close(*tensors, o=o, lse=lse)  # after its end, too
attention(*tensors)
with pytest.raises(flashverify.UsageError):
    assert_attention_close(*tensors, o=o, lse=lse)
""",
    "other_dtypes_are_not_refused": """
from bf16_kernel import attention, inputs

attention(*inputs())
q, k, v = (x.half() for x in inputs())
s = q.double() @ k.double().mT / 4
assert_attention_close(q, k, v, lse=s.logsumexp(-1).float())
""",
}
COMPILING = {
    "how_to_interpret_is_told": """
with pytest.raises(flashverify.UsageError, match="set TRITON_INTERPRET=1 before triton is first imported"):
    with flashverify.corrected_interpreter():
        pass
assert "triton" not in sys.modules
""",
    "outputs_of_torch_are_judged_where_triton_was_merely_imported": JUDGED,
    "how_to_interpret_is_told_after_triton_is_imported": """
import triton, os
os.environ["TRITON_INTERPRET"] = "1"
with pytest.raises(flashverify.UsageError, match="set TRITON_INTERPRET=1 before triton is first imported"):
    with flashverify.corrected_interpreter():
        pass
""",
}


SCRIPTS = {"interpreting": INTERPRETING, "compiling": COMPILING}


@functools.cache
def said(kind: str) -> dict[str, str]:
    """By name: nothing, or the traceback."""
    return json.loads(process(EACH % json.dumps(SCRIPTS[kind]), interpret=kind == "interpreting"))


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, scripts in SCRIPTS.items() for name in scripts])
def test_it_is_as_its_name_says(kind, name):
    assert said(kind)[name] == ""


@pytest.mark.thorough
def test_the_fixture_of_the_docstring_makes_a_suite_right(tmp_path):
    text = inspect.getdoc(flashverify.corrected_interpreter)
    example = text.split("    # conftest.py\n")[1].split("\nIt changes")[0]
    (tmp_path / "conftest.py").write_text(textwrap.dedent(example))
    (tmp_path / "test_kernel.py").write_text(
        "import flashverify\nfrom bf16_kernel import attention, inputs\n\n\n"
        "def test_it():\n    o, lse = attention(*inputs())\n"
        "    flashverify.assert_attention_close(*inputs(), o=o, lse=lse)\n"
    )
    process(
        f"""
        import os
        os.chdir({str(tmp_path)!r})
        assert pytest.main(["-q", "-p", "no:cacheprovider", "--rootdir", "."]) == 0
        """,
        interpret=False,
    )

"""Small subjects with planted mistakes."""

import importlib.util
import itertools
import sys
from pathlib import Path

HERE = Path(__file__).parent
_NUMBERS = itertools.count()


def loading(tmp_path):
    """A fixture: the subject of a file in which lines are replaced."""
    modules = []

    def of(file, *changes):
        text = (HERE / file).read_text(encoding="utf-8")
        for right, wrong in changes:
            assert text.count(right) == 1
            text = text.replace(right, wrong)
        name = f"repaired_{next(_NUMBERS)}"
        path = tmp_path / f"{name}.py"
        path.write_text(text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(name, path)
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        modules.append(name)
        spec.loader.exec_module(module)
        return module.small

    yield of
    for name in modules:
        del sys.modules[name]

"""Options are stated once for editors and once with defaults, and both say the same."""

import dataclasses
import inspect
import typing

import pytest
import torch

from flashverify_kernels import attention, attention_varlen, decode
from flashverify_kernels.flatten import flatten, flatten_decode, unflatten, unflatten_decode
from flashverify_kernels.options import AttentionOptions, DecodeOptions, DecodingOptions, Options, VarlenOptions

FUNCTIONS = ((attention, AttentionOptions), (attention_varlen, VarlenOptions), (decode, DecodingOptions))


def hints(kind):
    return typing.get_type_hints(kind)


@pytest.mark.parametrize(
    ("typed", "defaults", "own"), [(AttentionOptions, Options, {"packed"}), (DecodingOptions, DecodeOptions, set())]
)
def test_types_and_defaults_are_of_the_same_options(typed, defaults, own):
    assert set(hints(typed)) == {field.name for field in dataclasses.fields(defaults)} - own
    assert all(hints(defaults)[name] == kind for name, kind in hints(typed).items())


@pytest.mark.parametrize(("function", "typed"), FUNCTIONS)
def test_a_signature_shows_every_option_and_the_docstring_explains_it(function, typed):
    shown = inspect.signature(function).parameters

    assert set(hints(typed)) <= set(shown)
    assert all(shown[name].kind is inspect.Parameter.KEYWORD_ONLY for name in hints(typed))
    assert shown["precision"].default == "ieee"
    assert "options" not in shown
    assert all(f"        {name}: " in function.__doc__ for name in shown)


@pytest.mark.parametrize(
    ("function", "name"), [(attention, "casual"), (attention_varlen, "key_lengths"), (decode, "dropout")]
)
def test_an_option_that_a_function_does_not_take_is_refused(function, name):
    q = torch.zeros(1, 1, 1, 8)
    packed = {"max_q": 1, "max_k": 1} if function is attention_varlen else {}
    cu = [torch.tensor([0, 1], dtype=torch.int32)] * 2 if packed else []
    tensors = [q[0] if packed else q] * 3

    with pytest.raises(TypeError, match=rf"{function.__name__}\(\) got an unexpected keyword argument '{name}'"):
        function(*tensors, *cu, **packed, **{name: None})


def test_every_option_survives_being_plain_values():
    for kind, to, back in ((Options, flatten, unflatten), (DecodeOptions, flatten_decode, unflatten_decode)):
        empty = back(to(kind()))

        assert all(getattr(empty, field.name) == field.default for field in dataclasses.fields(kind))


def test_torchs_compiler_meets_the_constructor_of_options_which_it_can_follow(monkeypatch):
    quick = Options.of({"causal": "top-left"})
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    traced = Options.of({"causal": "top-left"})

    assert vars(quick) == {"causal": "top-left"}
    assert vars(traced) == vars(Options(causal="top-left"))

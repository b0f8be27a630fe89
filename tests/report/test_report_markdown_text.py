import pytest

from flashverify.report.markdown_text import code, fence, words


@pytest.mark.parametrize(
    ("text", "span"),
    [("a", "`a`"), ("a`b", "`` a`b ``"), ("``", "``` `` ```"), ("", "`   `"), (" a", "`  a `"), ("a\nb", "`a\\nb`")],
)
def test_code_spans_cannot_be_left(text, span):
    assert code(text) == span


def test_long_code_is_cut():
    assert code("x" * 100, limit=10) == "`xxxxxxxxx…`"


def test_fences_cannot_be_ended():
    assert fence("a\n```\nb").splitlines() == ["````", "a", "```", "b", "````"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("3 findings on a CPU.", "3 findings on a CPU."),
        ("a_b", "`a_b`"),
        ("only where Sq > Sk = 2", "only where Sq > Sk = 2"),
        ("> a", "`> a`"),
        ("== a", "`== a`"),
        ("see http://x", "`see http://x`"),
        ("@all", "`@all`"),
    ],
)
def test_words_are_plain_where_harmless(text, shown):
    assert words(text) == shown

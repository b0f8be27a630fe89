"""A line with a typical mistake: the right line is among the edits of it."""

import ast

import pytest

from flashverify.repair.candidates import sites
from flashverify.repair.family import Family
from tests.repair.written import dumped, edited_texts, function, ran_of

CONDITIONS = {
    "a comparison without its equal": ("see = key[None, :] < row[:, None]", "see = key[None, :] <= row[:, None]"),
    "a comparison with an equal": ("mask = key <= length", "mask = key < length"),
    "a comparison turned round": ("see = key[None, :] > row[:, None]", "see = key[None, :] < row[:, None]"),
    "unlike for like": ("x = head != 0", "x = head == 0"),
    "a bound that is one too small": ("mask = key < length", "mask = key < length - 1"),
    "a bound that is one too large": ("see = key[None, :] <= row[:, None]", "see = key[None, :] <= row[:, None] + 1"),
    "one part of a chain": ("see = left <= key < length", "see = left < key < length"),
    "a conjunct too many": ("m = (key < length) & (row < seq_q) & see", "m = (key < length) & see"),
    "the first conjunct too many": ("m = (key < length) & (row < seq_q)", "m = row < seq_q"),
    "or for and": ("m = (key < length) & (row < seq_q)", "m = (key < length) | (row < seq_q)"),
    "or for and inside another": ("m = (key < 1) & (row < 2) & see", "m = ((key < 1) | (row < 2)) & see"),
    "and for or": ("m = (key < length) | (row < seq_q)", "m = (key < length) & (row < seq_q)"),
    "a word too many": ("x = causal and windowed and head", "x = causal and head"),
    "the word or": ("x = causal and windowed", "x = causal or windowed"),
    "the word or among others": ("x = causal and (windowed or head)", "x = causal and (windowed and head)"),
    "a negation too many": ("x = not causal", "x = causal"),
    "an inversion too many": ("m = see & ~(key < length)", "m = see & (key < length)"),
    "a branch that is always taken": ("if causal:\n    x = 1", "if True:\n    x = 1"),
    "a branch that is never taken": ("if causal:\n    x = 1", "if False:\n    x = 1"),
    "a branch that is turned round": ("if causal or head:\n    x = 1", "if not (causal or head):\n    x = 1"),
    "one side of a choice": ("x = start if causal else stop", "x = stop"),
    "the sides of a choice exchanged": ("x = start if causal else stop", "x = stop if causal else start"),
    "where without its condition": ("x = tl.where(see, s, 0.0)", "x = s"),
    "where with its values exchanged": ("x = tl.where(see, 0.0, s)", "x = tl.where(see, s, 0.0)"),
}
NUMBERS = {
    "a term too many": ("x = start + left - 1", "x = start + left"),
    "a factor too many": ("x = s * scale * log2e", "x = s * scale"),
    "the first factor too many": ("x = scale * s", "x = s"),
    "minus for plus": ("x = start + left", "x = start - left"),
    "plus for minus": ("x = start - (stop - left)", "x = start - (stop + left)"),
    "a difference turned round": ("x = tl.exp(new - top)", "x = tl.exp(top - new)"),
    "a difference of sums turned round": ("x = top + lse - new", "x = new - (top + lse)"),
    "a quotient for a product": ("x = acc * total[:, None]", "x = acc / total[:, None]"),
    "a remainder for a quotient": ("x = head // heads", "x = head % heads"),
    "rounded up": ("x = length // BLOCK", "x = (length + BLOCK - 1) // BLOCK"),
    "rounded down": ("x = tl.cdiv(length, BLOCK)", "x = length // BLOCK"),
    "a sign too many": ("x = -(start + left)", "x = start + left"),
    "a sign that is missing": ("x = tl.exp(top) * new", "x = tl.exp(top) * (-new)"),
    "another flag": ("x = f(s, True)", "x = f(s, False)"),
    "a number that is one off": ("x = start + 2", "x = start + 1"),
    "twice a number": ("x = q.view(16)", "x = q.view(32)"),
    "half a float": ("x = s * 0.5", "x = s * 1.0"),
    "a float with the other sign": ("x = s * 1.5", "x = s * (-1.5)"),
    "a number for the lowest one": ("x = tl.full([16], 0.0)", 'x = tl.full([16], float("-inf"))'),
    "a remainder by another number for a quotient": ("x = row // heads", "x = row % head"),
    "a length that is rounded up": ("x = f(tl.cdiv(length, BLOCK) * BLOCK)", "x = f(length)"),
    "the first of a group for each": ("x = key // 64 * 64", "x = key"),
    "the other infinity": ('x = tl.where(see, s, float("inf"))', 'x = tl.where(see, s, float("-inf"))'),
    "a limit too many": ("x = tl.minimum(stop, seq_k)", "x = stop"),
    "the other side of a limit": ("x = min(stop, seq_k)", "x = seq_k"),
    "the largest for the smallest": ("x = tl.minimum(stop, seq_k)", "x = tl.maximum(stop, seq_k)"),
    "another base": ("x = tl.exp2(s - new[:, None])", "x = tl.exp(s - new[:, None])"),
    "another base of a logarithm": ("x = torch.log(total)", "x = torch.log2(total)"),
}
NAMES = {
    "another integer": ("mask = key < seq_q", "mask = key < seq_k"),
    "another field": ("x = row * p.stride_n", "x = row * p.stride_m"),
    "another vector": ("x = s - top[:, None]", "x = s - new[:, None]"),
    "another matrix": ("x = tl.dot(dv, q)", "x = tl.dot(dk, q)"),
    "a name for a number": ("for i in range(0, 64):\n    x = i", "for i in range(0, seq_k):\n    x = i"),
    "a name for a sum": ("y = length\nx = key < start + BLOCK", "y = length\nx = key < length"),
    "two arguments exchanged": ("x = f(seq_q, seq_k)", "x = f(seq_k, seq_q)"),
    "two parts of what is returned exchanged": ("return dq, dv, dk", "return dq, dk, dv"),
    "two targets exchanged": ("start, stop = f(q)", "stop, start = f(q)"),
    "the other axis": ("x = s * decay[None, :]", "x = s * decay[:, None]"),
}
STATEMENTS = {
    "a sum too many": ("acc += s", "pass"),
    "an assignment too many": ("s = s * scale", "pass"),
    "an assignment of several lines too many": ("s = f(\n    s,\n    scale,\n)", "pass"),
    "a call too many": ("tl.store(o, acc)", "pass"),
    "a step that should not be passed over": ("for i in f(q):\n    continue", "for i in f(q):\n    pass"),
    "a difference": ("acc += s", "acc -= s"),
    "a sum of which only the last term is left": ("acc += s", "acc = s"),
    "a step too few": (
        "for i in range(0, stop, BLOCK):\n    x = i",
        "for i in range(0, stop + BLOCK, BLOCK):\n    x = i",
    ),
    "half a step too few": (
        "for i in range(0, stop, left + 1):\n    x = i",
        "for i in range(0, stop + (left + 1), left + 1):\n    x = i",
    ),
    "a step too many": ("for i in range(stop):\n    x = i", "for i in range(stop - 1):\n    x = i"),
    "a first step too few": ("for i in range(start, stop):\n    x = i", "for i in range(0, stop):\n    x = i"),
    "a conversion too early": ("acc += tl.dot(w.to(tl.float16), v)", "acc += tl.dot(w, v)"),
    "a conversion of a sum too early": ("x = (s + w).to(tl.float16) * scale", "x = (s + w) * scale"),
    "a conversion to too few bits": ("x = s.to(tl.float16)", "x = s.to(tl.float32)"),
    "a function too many": ("x = tl.sigmoid(s)", "x = s"),
    "a conversion too many, twice": ("x = f(k.float(), v.float())", "x = f(k, v)"),
    "what hides as zero": ("x = tl.load(s, mask=see, other=1.0)", "x = tl.load(s, mask=see, other=0.0)"),
    "what hides as minus infinity": (
        "x = tl.load(s, mask=see, other=0.0)",
        'x = tl.load(s, mask=see, other=float("-inf"))',
    ),
    "what hides as nothing": ("x = tl.load(s, mask=see)", "x = tl.load(s, mask=see, other=0.0)"),
    "a field that is exchanged": ("x = s._replace(a=w)", "x = s"),
    "an argument by name too many": ("x = s.sum(1, keepdim=True)", "x = s.sum(1)"),
}
INSERTIONS = {
    "no upper limit": ("x = start + left", "x = tl.minimum(start + left, seq_k)"),
    "no lower limit": ("x = start - left", "x = tl.maximum(start - left, 0)"),
    "no offset": ("x = start", "x = start + left"),
    "no factor of an index": ("x = f(head)", "x = f(head * group)"),
    "no shift of places": ("x = f(key)", "x = f(key + left)"),
    "no other base": ("total = total", "total = total * 1.4426950408889634"),
    "a place before the first one": ("m = key < length", "m = (key >= 0) & (key < length)"),
    "a load without a mask": (
        "x = tl.load(s)\ny = key[None, :] < length",
        "x = tl.load(s, mask=key[None, :] < length, other=0.0)\ny = key[None, :] < length",
    ),
    "a store without a mask": (
        "tl.store(s, w)\ny = key[None, :] < length",
        "tl.store(s, w, mask=key[None, :] < length)\ny = key[None, :] < length",
    ),
    "a condition that another one has": (
        "x = row < seq_q\nm = key < length",
        "x = (row < seq_q) & (key < length)\nm = key < length",
    ),
    "no scale": ("s = tl.dot(q, k)", "s = tl.dot(q, k) * scale"),
    "no division": ("acc = acc", "acc = acc / total[:, None]"),
    "no statistic": ("s = s", "s = s - new[:, None]"),
    "no factor of a statistic": ("total = total", "total = total * decay"),
    "no factor of a vector in a sum": ("total = total + tl.sum(w, 1)", "total = total * decay + tl.sum(w, 1)"),
    "no factor of a matrix in a sum": ("acc = acc + tl.dot(w, v)", "acc = acc * decay[:, None] + tl.dot(w, v)"),
    "a part of a mask that stands elsewhere": (
        "x = key[None, :] < length\ny = row[:, None] < seq_q",
        "x = (key[None, :] < length) & (row[:, None] < seq_q)\ny = row[:, None] < seq_q",
    ),
    "a mask of a value": ("w = tl.exp(s)", "w = tl.where(see, tl.exp(s), 0.0)"),
    "a mask of scores": ("s = tl.dot(q, k)", 's = tl.where(see, tl.dot(q, k), float("-inf"))'),
    "a conversion too late": ("s = tl.dot(q, k)", "s = tl.dot(q.to(tl.float32), k)"),
}


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        pytest.param(*pair, id=name)
        for pairs in (CONDITIONS, NUMBERS, NAMES, STATEMENTS, INSERTIONS)
        for name, pair in pairs.items()
    ],
)
def test_the_right_line_is_among_the_edits(wrong, right):
    found = edited_texts(ran_of(function(wrong), kernel=True))

    assert dumped(function(right)) in _meanings(found)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("x = start + left", "x = min(start + left, seq_k)"),
        ("x = start - left", "x = max(start - left, 0)"),
        ("s = q @ k.mT", "s = (q @ k.mT) * scale"),
        ("s = (q @ k.mT).half()", "s = q @ k.mT"),
        ("x = f(q)", "x = f(q.float())"),
        ("x = f(q.stride(0))", "x = f(o.stride(0))"),
        ("x = q.shape[1]", "x = k.shape[1]"),
        ("x = f(q)", "x = f(q.contiguous())"),
        ("x = torch.empty_like(q)", "x = torch.empty_like(q, memory_format=torch.contiguous_format)"),
        ("x = None if top is None else f(heads)", "x = None if top is None else top"),
        ("x = f(heads) if top is not None else None", "x = top.contiguous() if top is not None else None"),
    ],
)
def test_plain_python_is_edited_in_its_own_words(wrong, right):
    found = edited_texts(ran_of(function(wrong)))

    assert dumped(function(right)) in _meanings(found)
    assert not any("tl." in text for text in found)


def _meanings(texts):
    found = set()
    for text in texts:
        try:
            found.add(dumped(text))
        except SyntaxError:
            continue
    return found


# --- what is no edit --------------------------------------------------------------------------------------------------


def candidates(text, **options):
    return [each for site in sites(ran_of(text, **options)) for each in site.candidates]


def test_an_edit_is_made_once_for_its_least_cost():
    found = candidates(function("x = min(start, stop)"))

    assert len({each.edit for each in found}) == len(found)
    assert [each.cost for each in found if each.edit.text == "(start)"] == [1.1]


def test_statements_hold_their_edits_cheapest_first():
    for site in sites(ran_of(function("x = start + left - 1", "see = key < length"))):
        costs = [each.cost for each in site.candidates]

        assert costs == sorted(costs)


def test_what_did_not_run_is_left_alone():
    ran = ran_of(function("x = start + left", "y = start - left"))
    ran.lines = {2}

    assert {site.line for site in sites(ran)} == {2}


@pytest.mark.parametrize(
    "line",
    [
        '"""seq_q + 1."""',
        "import torch",
        "assert start < stop",
        "if start < stop:\n    raise ValueError(start + 1)",
        "tl.multiple_of(start, 8)",
        "tl.static_assert(start < stop)",
        "def inner(x):\n    return x + 1",
    ],
)
def test_what_computes_nothing_is_left_alone(line):
    text = function(line, "x = start")
    last = text.count("\n")

    ran = ran_of(text)
    ran.node = next(each for each in ast.walk(ran.source.tree) if isinstance(each, ast.FunctionDef))

    assert {site.line for site in sites(ran)} == {last}


def test_what_is_returned_may_lack_a_factor():
    ran = ran_of(function("return tl.dot(q, k)"), kernel=True)
    ran.returned = "float[16, 32]"

    assert dumped(function("return tl.dot(q, k) * scale")) in _meanings(edited_texts(ran))


@pytest.mark.parametrize("answer", ["True", "False"])
def test_a_question_may_be_answered_alike_always(answer):
    ran = ran_of(function("return seq_q % 16 == 0"))
    ran.returned = "bool"

    assert dumped(function(f"return {answer}")) in _meanings(edited_texts(ran))


@pytest.mark.parametrize(
    ("wrong", "elsewhere", "right"),
    [
        ("s = tl.dot(q, k)", "s = s * scale", "s = tl.dot(q, k); s = s * scale"),
        ("s = tl.dot(q, k)", "s += w", "s = tl.dot(q, k); s += w"),
        ("x = f(q, head=1)", "y = f(k, head=2, stop=stop)", "x = f(q, head=1, stop=stop)"),
        ("x = f()", "y = f(stop=stop)", "x = f(stop=stop)"),
    ],
)
def test_what_another_function_does_may_be_forgotten(wrong, elsewhere, right):
    ran, other = ran_of(function(wrong)), ran_of(function(elsewhere))
    ran.family = Family((each.source, each.node) for each in (ran, other))

    assert dumped(function(right)) in _meanings(edited_texts(ran))


def test_an_argument_that_a_call_has_is_not_missing():
    ran, other = ran_of(function("x = f(q, head=1)")), ran_of(function("y = f(k, head=2, stop=stop)"))
    family = Family((each.source, each.node) for each in (ran, other))
    call = next(each for each in ast.walk(ran.node) if isinstance(each, ast.Call))

    assert [(name, text) for name, text, _ in family.missing(call)] == [("stop", "stop")]


def test_what_reads_names_of_another_function_alone_is_not_put_in():
    ran, other = ran_of(function("s = tl.dot(q, k)")), ran_of(function("s = s * unknown"))
    ran.family = Family((each.source, each.node) for each in (ran, other))

    assert not any("unknown" in text for text in edited_texts(ran))


@pytest.mark.parametrize("kernel", [True, False])
def test_every_edit_is_python_inside_the_node_that_it_changes(kernel):
    for wrong, _ in (*CONDITIONS.values(), *NUMBERS.values(), *NAMES.values(), *STATEMENTS.values()):
        ran = ran_of(function(wrong), kernel=kernel)
        text = ran.source.text
        for site in sites(ran):
            for each in site.candidates:
                start, end = ran.source.span(each.node)
                assert start <= each.edit.start <= each.edit.end <= end
                ast.parse(text[: each.edit.start] + each.edit.text + text[each.edit.end :])

"""Numbered pieces of work go on where they were ended."""

import json

from resumed import pieces


def squared(number, power):
    return {"number": number, "value": number**power} if number != 2 else None


def test_what_is_done_is_not_done_again_and_a_line_that_was_cut_off_is(tmp_path):
    file = tmp_path / "record.jsonl"
    part = tmp_path / "record.jsonl.part"
    part.write_text('[0,{"number":0,"value":"kept"}]\n[2,null]\n[3,{"number":3,"va', encoding="utf-8")

    found = pieces(squared, [(n, 2) for n in range(4)], jobs=1, file=file)

    assert [x["value"] for x in found] == ["kept", 1, 9]
    assert [json.loads(line)[0] for line in part.read_text(encoding="utf-8").splitlines()] == [0, 2, 1, 3]
    assert pieces(squared, [(3, 2), (0, 2)], jobs=1, file=file)[1]["value"] == "kept"

"""What the kernels over chosen keys, codes and latent caches compile to: wide copies, matrix units, and tiles that stay in registers."""

import json
import os
import subprocess
import sys

import msgspec
import pytest

from flashverify.compiling.discover import Discovery, discover
from flashverify.subjects import load_subject

pytestmark = pytest.mark.slow

MOST_STACK = 256  # bytes; a latent tile of 64 rows and 512 channels keeps some words of its loop in local memory


def quantised(*, decode, codes):
    return ("quantised", 90, {"decode": decode, "d": 128, "codes": codes, "mode": "folded", "scale_last": True})


# A forward over chosen keys and one over a latent cache; the other kernels and generations are thorough.
CASES = {
    "some": [
        ("selected", 90, {"kind": "forward", "d": 128, "dv": 128}),
        ("latent", 90, {"dv": 128, "rope": 64, "mask": "causal", "page_size": 64, "capability": [9, 0]}),
    ],
    "others": [
        *(("selected", 90, {"kind": kind, "d": 128, "dv": 128}) for kind in ("dq", "dkdv")),
        ("selected", 80, {"kind": "dkdv", "d": 64, "dv": 64, "causal": True}),
        ("selected", 100, {"kind": "dkdv", "d": 128, "dv": 128, "packed": 16, "keys": 1}),
        *(quantised(decode=False, codes=codes) for codes in ("e4m3", "int4")),
        *(quantised(decode=True, codes=codes) for codes in ("e4m3", "int4")),
        ("latent", 90, {"dv": 512, "rope": 64, "capability": [9, 0]}),
        ("latent", 100, {"dv": 512, "rope": 64}),
    ],
}

SCRIPT = """
import json, sys
import torch
from flashverify_kernels.aot import compile_source
from flashverify_kernels.latent_aot import latent_source
from flashverify_kernels.quantised.aot import quantised_source
from flashverify_kernels.selected_aot import selected_source

make = {"selected": selected_source, "quantised": quantised_source, "latent": latent_source}
results = []
for name, architecture, options in json.loads(sys.argv[1]):
    if "capability" in options:
        options["capability"] = tuple(options["capability"])
    built = compile_source(make[name](**options, dtype=torch.float16), architecture)
    results.append({
        "stack": built.stack, "shared": built.shared, "copies": built.ptx.count("cp.async.cg.shared.global"),
        "halves": "ld.global.b16" in built.ptx, "bytes": "ld.global.b8" in built.ptx,
        "matrix": "mma" in built.ptx, "groups": "wgmma" in built.ptx,
    })
print(json.dumps(results))
"""


@pytest.fixture(scope="module", params=["some", pytest.param("others", marks=pytest.mark.thorough)])
def compiled(request):
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(CASES[request.param])],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return list(zip(CASES[request.param], json.loads(done.stdout), strict=True))


def test_rows_are_copied_in_pieces_of_16_bytes(compiled):
    for case, result in compiled:
        assert result["copies"], case
        assert not result["halves"], case
        assert not result["bytes"], case


def test_products_run_on_matrix_units(compiled):
    for case, result in compiled:
        assert result["matrix"], case
        assert result["groups"] == (case[1] == 90 and not case[2].get("decode", False)), case


def test_tiles_fit(compiled):
    for case, result in compiled:
        assert result["stack"] <= MOST_STACK, case
        assert result["shared"] <= (163 if case[1] == 80 else 227) * 1024, case


@pytest.mark.parametrize(
    "subject", ["bundled-selected", "bundled-quantised", "bundled-quantised-decode", "bundled-latent"]
)
def test_every_launch_can_be_listed(subject):
    found = discover(load_subject(subject))

    assert found.launches
    assert msgspec.json.decode(msgspec.json.encode(found), type=Discovery) == found

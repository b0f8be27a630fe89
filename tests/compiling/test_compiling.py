import importlib
import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from flashverify import cli, compiling
from flashverify.compiling import discover
from flashverify.compiling.records import Job
from flashverify.errors import NoVerdictError, UsageError
from flashverify.interpreter import session
from flashverify.subjects.launches import Launch, Pointer, Record, Value
from tests.compiling.discovered import launches_of

HERE = Path(__file__).parent
PLANTED = HERE / "planted_kernels.py"
GRADIENTS = ("bwd_dq_kernel", "bwd_dk_dv_kernel")

# A kernel each at an architecture, and what else changes its code; every combination is `flashverify compile`, 2,124 compilations.
SOME = [("forward float16 d=64 none", 90), ("dkdv float16 d=64 causal", 90), ("delta float16 d=128", 80)]
OTHERS = [
    ("dq float16 d=64 causal", 90),
    ("delta float16 d=128", 90),
    ("forward bfloat16 d=72 tree", 90),
    ("forward float16 d=64 none", 80),
    ("forward float16 d=64 none", 100),
]


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        patch.syspath_prepend(str(HERE))
        yield


@pytest.fixture
def found_here(monkeypatch):
    """Launches are found in this process, which has imported torch already."""
    monkeypatch.setattr("flashverify.compiling.run.find_launches", launches_of)


def line_of(mark):
    return next(
        n for n, line in enumerate(PLANTED.read_text(encoding="utf-8").splitlines(), 1) if f"PLANTED {mark}" in line
    )


@pytest.fixture(scope="module", params=[SOME, pytest.param(OTHERS, marks=pytest.mark.thorough)], ids=["some", "others"])
def bundled(request):
    found = launches_of("bundled")
    launches = {launch.label: launch for launch in found.launches}
    jobs = [
        Job(subject="bundled", capability=capability, deterministic=found.deterministic, launch=launches[label])
        for label, capability in request.param
    ]
    return compiling.compile_launches(jobs, workers=1)


@pytest.mark.slow
@pytest.mark.thorough
def test_the_bundled_kernels_have_no_hazard_and_compile_for_every_architecture(bundled):
    assert [item.error for item in bundled] == [""] * len(bundled)
    assert {hazard for item in bundled for hazard in item.built.hazards} == set()
    assert len({item.architecture for item in bundled}) >= 2
    assert compiling.exit_code(bundled) == 0
    assert compiling.as_text(bundled).startswith(f"PASS: {len(bundled)} compilations without a hazard")


@pytest.mark.slow
@pytest.mark.thorough
def test_the_fast_paths_hardly_touch_local_memory_inside_their_loops(bundled):
    fast = [
        item for item in bundled if item.architecture == "sm_90" and "d=72" not in item.label
    ]  # full tiles, 16 bits

    assert len(fast) == 2
    for item in fast:  # dK and dV: the tiles that were fastest on an H200 keep some words of a loop in local memory
        assert item.built.loop_spills <= (40 if item.label.startswith("dkdv") else 0), item.label


@pytest.mark.slow
def test_planted_hazards_are_found_at_their_line(found_here):
    names = {"unfilled": "unfilled-load", "overflowing": "int32-offset", "racing": "atomic", "clean": ""}
    found = compiling.compile_subjects([f"{PLANTED}:ALL"], ["sm_90"], only="d=64", workers=1)

    assert {item.kernel for item in found} == set(names)
    for item in found:
        kind = names[item.kernel]
        hazards = [(hazard.kind, hazard.where) for hazard in item.built.hazards]
        assert hazards == ([(kind, f"{PLANTED}:{line_of(kind)}")] if kind else [])
        assert item.built.registers > 0
    assert compiling.exit_code(found) == 1


N, BLOCK = Value(16), Value(64)
FLAT = {"x_ptr": Pointer("float32"), "BLOCK": BLOCK}
ROWS = {"x_ptr": Pointer("float32"), "y_ptr": Pointer("float32"), "stride": N, "n": N, "BLOCK": BLOCK}
BYTES = {"x_ptr": Pointer("float16"), "y_ptr": Pointer("uint8"), "z_ptr": Pointer("float32")}
WRITTEN = {
    "broken": ("broken", FLAT),
    "missing": ("missing", FLAT),
    "clean": ("clean", ROWS),
    "overflowing": ("overflowing", ROWS),
    "narrow": ("unpacked", BYTES | {"D": Value(16)}),
    "wide": ("unpacked", BYTES | {"D": Value(32)}),
}


def job(launch):
    return Job(subject="planted", capability=90, deterministic=True, launch=launch)


def written(name):
    kernel, arguments = WRITTEN[name]
    return Launch(label=name, module="planted_kernels", kernel=kernel, arguments=arguments)


def recorded():
    """The launch of a kernel that takes tuples."""
    planted = importlib.import_module("planted_kernels")
    x, y = torch.zeros(4, 64), torch.zeros(4, 64)
    launches: list[Launch] = []
    with session(), discover.recording(launches, "tuples"):
        planted.recorded[(4,)](planted.View(x, 64), planted.View(y, 64), (50, None), BLOCK=64)
    (launch,) = launches
    return launch


@pytest.fixture(scope="module")
def built(cache):
    """What single launches of the planted kernels compile to in one process: by label."""
    jobs = [job(launch) for launch in (*map(written, WRITTEN), recorded())]
    return {found.label: found for found in compiling.compile_launches(jobs, workers=1)}


@pytest.mark.slow
def test_a_launch_with_tuples_is_recorded_and_compiled(built):
    launch, found = recorded(), built["tuples"]

    assert launch.arguments["x"] == Record("planted_kernels", "View", (Pointer("float32"), Value(16)))
    assert isinstance(launch.arguments["sizes"], Record)
    assert found.built is not None, found.error
    assert [hazard.kind for hazard in found.built.hazards] == ["int32-offset"]


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("kernel", ["fwd_kernel", *(pytest.param(x, marks=pytest.mark.thorough) for x in GRADIENTS)])
def test_the_walk_through_has_unfilled_loads_and_32_bit_offsets_and_filling_cures_the_first(
    kernel, found_here, monkeypatch
):
    monkeypatch.setattr(discover, "_DIMS", (64,))
    specs = ["seed-document", "seed-document-filled"]
    jobs = [job for spec in specs for job in compiling.find_jobs([spec], ["sm_90"], only=f"{kernel} fp16 d=64")]
    found = compiling.compile_launches(jobs, workers=1)
    assert {(item.subject, item.kernel) for item in found} == {(spec, kernel) for spec in specs}
    hazards = [{h.kind for item in found if item.subject == spec for h in item.built.hazards} for spec in specs]

    assert hazards == [{"unfilled-load", "int32-offset", "grid-limit"}, {"int32-offset", "grid-limit"}]


@pytest.mark.slow
def test_a_product_of_unpacked_bytes_over_fewer_elements_than_their_layout_is_found_at_its_line(built):
    found = [(hazard.kind, hazard.where) for hazard in built["narrow"].built.hazards]
    assert found == [("narrow-product", f"{PLANTED}:{line_of('narrow-product')}")]
    assert built["wide"].built.hazards == ()


@pytest.mark.slow
def test_a_kernel_that_does_not_compile_is_an_error_and_costs_no_other(built):
    broken, missing, clean = (built[name] for name in ("broken", "missing", "clean"))

    assert "a block of more than 64" in broken.error
    assert "no attribute 'missing'" in missing.error
    assert clean.built is not None
    assert [compiling.exit_code([item]) for item in (broken, missing, clean)] == [1, 1, 0]
    assert compiling.as_text([broken, clean]).startswith("FAIL: 0 hazards, 1 of 2 compilations failed")


@pytest.mark.slow
@pytest.mark.thorough
def test_a_hazard_is_of_the_file_that_is_compiled_not_of_a_like_one_compiled_before(built, tmp_path, monkeypatch):
    file = tmp_path / PLANTED.name
    file.write_text(PLANTED.read_text(encoding="utf-8"), encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        (found,) = compiling.compile_launches([job(written("overflowing"))], workers=1)

    for each, path in ((built["overflowing"], PLANTED), (found, file)):
        assert each.built is not None, each.error
        assert [h.where for h in each.built.hazards] == [f"{path}:{line_of('int32-offset')}"]


@pytest.mark.slow
def test_a_subject_without_kernels_gives_no_verdict(found_here):
    with pytest.raises(NoVerdictError, match="it launches no Triton kernel"):
        compiling.compile_subjects(["torch-cpu"], ["sm_90"])
    assert compiling.exit_code([]) == 3


@pytest.mark.parametrize("architecture", ["90", "sm_7", "gfx942"])
def test_an_unknown_architecture_is_refused(architecture):
    with pytest.raises(UsageError, match=architecture):
        compiling.compile_subjects(["bundled"], [architecture])


def test_an_unknown_subject_is_refused():
    with pytest.raises(UsageError, match="is not known"):
        compiling.compile_subjects(["nothing"], ["sm_90"])


@pytest.mark.slow
def test_the_command_prints_json_and_its_exit_code_and_of_how_many_a_sample_is(found_here):
    given = ["--subject", f"{PLANTED}:UNFILLED", "--arch", "sm_80", "--arch", "sm_90", "--sample", "1", "--json"]
    done = CliRunner().invoke(cli.main, ["compile", *given])

    found = json.loads(done.stdout)
    assert (done.exit_code, found["exit_code"]) == (1, 1)
    assert found["verdict"] == "FAIL: 1 hazard, 0 of 1 compilations failed (a sample of 2)"
    assert [item["built"]["hazards"][0]["kind"] for item in found["compilations"]] == ["unfilled-load"]

"""Whatever happens to a file that a user keeps, reading it ends in what it holds or in a GpudocError, never else."""

import json

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpudoc.bench.documents import load_record, record_to_json
from gpudoc.bench.model import Record
from gpudoc.bench.report import BenchReport
from gpudoc.doctor import document
from gpudoc.doctor.examine import examine_machine
from gpudoc.errors import GpudocError
from gpudoc.facts.model import Machine
from gpudoc.facts.readers import intake
from gpudoc.fleet import documents as fleet_documents
from gpudoc.fleet.report import FleetReport
from gpudoc.profile import store
from gpudoc.profile.match import explain
from gpudoc.profile.model import Hardware, Profile, WorkloadKey
from gpudoc.profile.model import Settings as ProfileSettings
from gpudoc.render.fleet_page import render_page
from gpudoc.workload.config import load_config
from tests.bench.builders import row
from tests.fleet.test_documents import a_record

CONFIG = b"""model: {target: 'mine:Model', args: {width: 4}}
data: {target: 'mine:Data', args: {n: 64}, eval: {target: 'mine:Data'}}
loss: {target: 'torch.nn:MSELoss'}
schedule: {name: cosine, warmup_steps: 2, final_share: 0.1}
train: {global_batch: 8, steps: 4, seed: 1, precision: fp32, grad_clip: 1.0}
imports: [json]
"""
PROFILE = yaml.safe_dump(
    Profile(
        hardware=Hardware(device="cpu", name="A CPU", memory_bytes=24 << 30, torch="2.13.0", cpu_cores=2.0),
        workload=WorkloadKey(config="mine", model="0123abcd"),
        settings=ProfileSettings(precision="fp32", micro_batch=16),
        why=("because",),
    ).document()
).encode()
HERE = Hardware(device="cuda", name="NVIDIA H100", memory_bytes=80 << 30, torch="2.9.1", count=2)

TOKENS = (
    b"\x00", b"\x7f", b"\x1b", b"\t", b"\xff", b"\xed\xa0\x80", b"\xe2\x80\xa8", b"\\ud800", b"'", b'"', b": ", b"- ",
    b"#", b"?", b"|", b"%", b"[" * 60, b"{", b"}", b",", b"&a ", b"*a", b"<<: *a", b"!!binary x", b"!!set ", b"-1",
    b"1e999", b"1e308", b".nan", b"NaN", b"Infinity", b"true", b"null", b"[]", b"{}", b"2024-13-45", b"0x" + b"f" * 500,
    b"~", b"9" * 30, b"9" * 5000, b"1:59:59",
)  # fmt: skip
EDITS = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 12), st.sampled_from((b"", *TOKENS)) | st.binary(max_size=3)),
    min_size=1,
    max_size=3,
)
MANY = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def edited(content, edits):
    """`content` with pieces of it cut out and others put in their place."""
    for where, length, token in edits:
        place = round(where * len(content))
        content = content[:place] + token + content[place + length :]
    return content


def read_or_refused(action):
    try:
        return action()
    except GpudocError as problem:
        refused = problem
    assert refused.message
    assert refused.exit_code == 2, refused.message
    return None


@MANY
@given(edits=EDITS)
def test_a_config(tmp_path, edits):
    path = tmp_path / "cfg.yaml"
    path.write_bytes(edited(CONFIG, edits))
    read_or_refused(lambda: load_config(str(path)).config.digest())


@MANY
@given(edits=EDITS)
def test_a_profile(tmp_path, edits):
    path = tmp_path / "profile.yaml"
    path.write_bytes(edited(PROFILE, edits))
    profile = read_or_refused(lambda: store.load(path))
    if profile is not None:
        assert all(map(str, explain(profile, HERE, WorkloadKey(config="mine", model="x"))))
        assert store.file_name(profile).endswith(".yaml")


@MANY
@given(edits=EDITS)
def test_a_bench_record(tmp_path, edits):
    old = Record(environment={"bench_version": 2}, measurements=(row(),))
    path = tmp_path / "bench.json"
    path.write_bytes(edited(json.dumps(record_to_json(old)).encode(), edits))
    record = read_or_refused(lambda: load_record(path))
    # a record that is whole may still be of another machine
    report = None if record is None else read_or_refused(lambda: BenchReport.of(old, record))
    if report is not None:
        assert report.exit_code in (0, 1)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=EDITS)
def test_a_record_of_a_fleet(tmp_path, edits):
    old = a_record()
    path = tmp_path / "fleet.json"
    path.write_bytes(edited(json.dumps(fleet_documents.record_to_json(old)).encode(), edits))
    record = read_or_refused(lambda: fleet_documents.load_record(path))
    if record is not None:
        report = FleetReport.of(record)
        assert report.exit_code in (0, 1, 130)
        assert render_page(report)
        json.dumps(report.to_json(), allow_nan=False)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=EDITS)
def test_a_report_of_doctor(tmp_path, edits):
    path = tmp_path / "doctor.json"
    path.write_bytes(edited(json.dumps(document.dump(examine_machine(Machine()))).encode(), edits))
    own = intake.read_document(intake.load(path))
    if own is not None:
        read_or_refused(lambda: document.load(own))

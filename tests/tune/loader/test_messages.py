import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudoc.tune.loader.messages import (
    AskCosts,
    AskRun,
    Costs,
    LoaderAnswer,
    LoaderFailure,
    LoaderQuestion,
    LoaderRun,
    Open,
    Opened,
    Ran,
)
from gpudoc.tune.model.loader import LoaderCosts, LoaderSetting
from gpudoc.tune.trial.messages import Variant
from gpudoc.tune.trial.wire import BrokenMessageError, decode, encode
from gpudoc.workload.config import BUILTIN, load_config

counts = st.integers(0, 1 << 40)
seconds = st.floats(allow_nan=False)
settings = st.builds(LoaderSetting, num_workers=counts, prefetch_factor=counts, pin_memory=st.booleans())
costs = st.builds(
    LoaderCosts,
    batch_s=st.lists(seconds, max_size=3).map(tuple),
    worker_cpu_s=seconds,
    main_s=seconds,
    step_s=seconds,
    step_cpu_s=seconds,
)
runs = st.builds(LoaderRun, step_s=seconds, steps=counts, wait_share=seconds, start_s=seconds, restart_s=seconds)


@given(
    st.one_of(
        st.builds(AskCosts, seconds=seconds),
        st.builds(AskRun, setting=settings, seconds=seconds, period_s=seconds),
    )
)
def test_every_question_comes_back_as_it_was(asks):
    assert decode(LoaderQuestion, encode(LoaderQuestion(asks=asks)), "gpudoc tune").asks == asks


@given(
    st.one_of(
        st.builds(Opened, num_samples=counts, batch_size=counts),
        st.builds(Costs, costs=costs),
        st.builds(Ran, run=runs),
        st.builds(LoaderFailure, failure=st.text(), traceback=st.text()),
    )
)
def test_every_answer_comes_back_as_it_was_on_one_line(says):
    line = encode(LoaderAnswer(says=says))
    assert b"\n" not in line
    assert decode(LoaderAnswer, line, "the child").says == says


@pytest.mark.parametrize("name", BUILTIN)
def test_the_workload_comes_back_as_it_was(name):
    order = Open(loaded=load_config(name), batch_size=4, device="cpu", variant=Variant(precision="bf16"))
    back = decode(Open, encode(order), "gpudoc tune")
    assert back == order
    assert back.loaded.config.digest() == order.loaded.config.digest()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"num_samples": 64, "batch_size": 8}', "says: Field required"),
        (b'{"says": {"kind": "opened", "num_samples": "64", "batch_size": 8}}', "num_samples: Input should be a valid"),
        (b'{"says": {"kind": "ran", "run": {"step_s": 0.1}}}', "run.steps"),
        (b'{"says": {"kind": "failure", "failure": "E', "EOF"),
    ],
)
def test_an_answer_of_another_version_is_named(line, why):
    with pytest.raises(BrokenMessageError, match=why):
        decode(LoaderAnswer, line, "the child")

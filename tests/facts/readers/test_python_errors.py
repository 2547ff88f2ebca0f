from __future__ import annotations

from gpudoc.facts.readers.python_errors import CodeFrame, ErrorChain, PythonError


def test_an_exception_has_a_short_name_and_a_chain_its_ends():
    inner = PythonError(kind="torch.OutOfMemoryError", first=3, last=9)
    chain = ErrorChain(errors=(inner, PythonError(kind="ValueError", first=10, last=12)))
    assert inner.name == "OutOfMemoryError"
    assert (chain.first, chain.last) == (3, 12)


def test_a_frame_knows_whose_code_it_is():
    assert CodeFrame(file="/opt/lib/python3.10/site-packages/torch/_ops.py").owner == "torch"
    assert CodeFrame(file="/home/ann/train.py").owner == "user"

from __future__ import annotations

import pytest

from tests.doctor.causes.judge import first, ids, report_of

CASES = [
    'RuntimeError: Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "fc.weight", "fc.bias". \n'
    '\tUnexpected key(s) in state_dict: "module.fc.weight", "module.fc.bias". ',
    # the wrapper stood around a part of the model
    'Missing key(s) in state_dict: "module.body.0.weight". Unexpected key(s) in state_dict: "body.module.0.weight".',
    "missing_keys=['encoder.w', 'encoder.b'], unexpected_keys=['_orig_mod.encoder.w', '_orig_mod.encoder.b']",
    'Error(s) in loading state_dict for UNet: Missing key(s) in state_dict: "inc.w". I saved it with nn.DataParallel on two cards',
]


@pytest.mark.parametrize("text", CASES)
def test_what_a_wrapper_put_before_every_name(text):
    assert first(text) == "state_dict_module_prefix", [(f.id, f.confidence) for f in report_of(text).findings]


def test_another_prefix_is_less_sure():
    text = 'Missing key(s) in state_dict: "conv.weight". Unexpected key(s) in state_dict: "net.conv.weight".'
    found = [f.confidence for f in report_of(text).findings if f.id == "state_dict_module_prefix"]
    assert found
    assert max(found) < 0.7


@pytest.mark.parametrize(
    "text",
    [
        'Missing key(s) in state_dict: "head.weight". Unexpected key(s) in state_dict: "classifier.weight".',
        "The module. Then we load the data and save the keys of the cache.",
        "Loaded checkpoint, all keys matched, epoch 4 loss 0.1 with DistributedDataParallel",
    ],
)
def test_names_that_differ_otherwise_and_plain_words(text):
    assert "state_dict_module_prefix" not in [f.id for f in report_of(text).findings if f.severity != "info"], ids(text)

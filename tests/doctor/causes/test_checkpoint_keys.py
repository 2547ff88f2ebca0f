from tests.doctor.causes.judge import first_is, never, report_of


def test_another_prefix_is_less_sure():
    text = 'Missing key(s) in state_dict: "conv.weight". Unexpected key(s) in state_dict: "{}.conv.weight".'
    (usual,), (other,) = (
        [f.confidence for f in report_of(text.format(prefix)).findings if f.id == "state_dict_module_prefix"]
        for prefix in ("module", "net")
    )
    assert other < usual


test_what_a_wrapper_put_before_every_name = first_is([
    ("state_dict_module_prefix", 'RuntimeError: Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "fc.weight", "fc.bias". \n\tUnexpected key(s) in state_dict: "module.fc.weight", "module.fc.bias". '),
    ("state_dict_module_prefix", 'Missing key(s) in state_dict: "module.body.0.weight". Unexpected key(s) in state_dict: "body.module.0.weight".'),
])  # fmt: skip
test_names_that_differ_otherwise_and_plain_words = never([
    ("state_dict_module_prefix", 'Missing key(s) in state_dict: "head.weight". Unexpected key(s) in state_dict: "classifier.weight".'),
    ("state_dict_module_prefix", "The module. Then we load the data and save the keys of the cache."),
    ("state_dict_module_prefix", "Loaded checkpoint, all keys matched, epoch 4 loss 0.1 with DistributedDataParallel"),
])  # fmt: skip

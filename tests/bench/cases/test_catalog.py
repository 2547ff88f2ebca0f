from gpudoc.bench.cases.catalog import CPU_CASES, CUDA_CASES, case_names, cases_for


def test_a_device_has_its_own_cases_each_named_once():
    assert cases_for("cpu") is CPU_CASES
    assert cases_for("cuda:3") is CUDA_CASES
    for cases in (CPU_CASES, CUDA_CASES):
        assert len({case.meaning for case in cases}) == len(cases)
        assert all(case.share > 0 and case.meaning for case in cases)
    assert {case.name for case in CPU_CASES} <= {case.name for case in CUDA_CASES}, "a GPU's host is measured too"
    assert set(case_names()) == {case.name for case in (*CPU_CASES, *CUDA_CASES)}

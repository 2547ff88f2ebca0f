from gpudoc.errors import ExitCode, GpudocError


def test_exit_codes_are_those_of_the_contract():
    assert {code.name: code.value for code in ExitCode} == {
        "OK": 0,
        "BAD_ANSWER": 1,
        "NOT_DONE": 2,
        "FAULT": 70,
        "RESUME": 75,
        "INTERRUPTED": 130,
    }


def test_an_error_is_wrong_usage_unless_it_says_otherwise():
    problem = GpudocError("cfg.yaml: no such file", hint="cfgs.yaml exists")
    assert problem.exit_code is ExitCode.NOT_DONE
    assert (str(problem), problem.hint) == ("cfg.yaml: no such file", "cfgs.yaml exists")

from gpudoc.process.arguments import without


def test_options_go_with_their_values_and_flags_alone():
    line = ["--model", "a.yaml", "--gpus", "2", "--slurm=job.sh", "--plain", "--gpus=4", "--json"]
    assert without(line, "--gpus", "--slurm") == ["--model", "a.yaml", "--plain", "--json"]
    assert without(line, "--gpus", "--slurm", flags=("--plain",)) == ["--model", "a.yaml", "--json"]


def test_what_is_not_named_stays_as_it_is():
    line = ["--set", "gpus=2", "--gpus-per-node", "2", "--plainly"]
    assert without(line, "--gpus", flags=("--plain",)) == line


def test_an_option_at_the_end_has_no_value_to_take():
    assert without(["--model", "a", "--gpus"], "--gpus") == ["--model", "a"]

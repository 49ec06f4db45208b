import pytest

from hpckit.slurm.reasons import explain, is_held, needs_change


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("Priority", "higher priority"),
        ("Resources", "next in line"),
        ("(Resources)", "next in line"),
        ("DependencyNeverSatisfied", "never start"),
        ("JobHeldUser", "scontrol release"),
        ("PartitionTimeLimit", "lower --time"),
        ("QOSMaxGRESPerUser", "all the GPUs its QOS allows one user"),
        ("AssocGrpGRES", "The account uses all the GPUs"),
        ("AssocGrpCPUMinutesLimit", "The account's budget of CPUs x time"),
        ("AssocGrpGRESRunMinutes", "The account's budget of GPUs x time"),
        ("QOSMaxWallDurationPerJobLimit", "more time per job than its QOS allows"),
        ("QOSMaxCpuPerNode", "more CPUs per node"),
        ("AssocMaxEnergyPerNode", "more energy per node"),
        ("QOSMinGRES", "fewer GPUs than its QOS wants"),
        ("QOSMaxJobsPerUserLimit", "all the jobs"),
        ("QOSGrpSubmitJobsLimit", "submitted jobs"),
        ("MaxGRESPerAccount", "The account uses all the GPUs"),
        ("AssociationJobLimit", "The account uses all the jobs"),
        ("QOSResourceLimit", "The QOS uses all the resources"),
        ("QOSNotAllowed", "does not accept its QOS"),
    ],
)
def test_a_code_becomes_a_sentence(code: str, words: str) -> None:
    sentence = explain(code)
    assert sentence is not None
    assert words in sentence
    assert "  " not in sentence


def test_a_command_in_it_has_the_job_s_id() -> None:
    said = "It is held by its user: release it with 'scontrol release 7_2'."
    assert explain("JobHeldUser", "7_2") == said
    assert (explain("launch failed requeued held", "7") or "").count(" 7'") == 1


def test_what_follows_the_comma_is_kept() -> None:
    sentence = explain("ReqNodeNotAvail, UnavailableNodes:c1")
    assert sentence is not None
    assert sentence.startswith("A node it needs is down")
    assert sentence.endswith("(UnavailableNodes: c1)")


@pytest.mark.parametrize("code", ["SomethingNew", "FooLimit", "", "MaxFoo", "some words, and more"])
def test_an_unknown_code_is_returned_as_it_is(code: str) -> None:
    assert explain(code) == code


def test_no_reason_stays_none() -> None:
    assert explain(None) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("job requeued in held state", "It was put back into the queue and is held: release it"),
        ("job_requeued_in_special_exit_state", "It was put back into the queue and is held"),
        ("launch failed requeued held", "Its nodes could not start it, and it is held: release it"),
    ],
)
def test_texts_that_slurm_has_in_place_of_a_code(text: str, said: str) -> None:
    """`scontrol requeuehold`; scontrol writes `_` for the spaces that squeue has."""
    for written in (text, text.replace(" ", "_"), f"({text})"):
        assert (explain(written) or "").startswith(said)
    assert (is_held(text), needs_change(text)) == (True, True)

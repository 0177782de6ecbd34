"""Each way to get a manifest wrong, and what is said about it, word for word."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml
from pydantic import ValidationError

from api_manifests import BAD, VALID, Bad, changed
from millrace_api import ConsumerPipeline, InvalidManifest, load

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
def test_every_problem_is_reported_with_its_path_its_value_and_what_is_allowed(bad: Bad) -> None:
    with pytest.raises(InvalidManifest) as caught:
        load(yaml.safe_dump(changed(bad.changes), sort_keys=False))

    told = [str(replace(problem, line=0)) for problem in caught.value.problems]
    assert sorted(told) == sorted(bad.problems)


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
def test_the_model_itself_refuses_what_load_refuses(bad: Bad) -> None:
    with pytest.raises(ValidationError):
        ConsumerPipeline.model_validate(changed(bad.changes))


@pytest.mark.parametrize("name", VALID)
def test_what_is_allowed_is_loaded(name: str) -> None:
    assert load(yaml.safe_dump(changed(VALID[name]))).pipeline.metadata.name == "flight-delays"


@pytest.mark.parametrize("name", VALID)
def test_a_model_written_out_and_read_again_is_the_same(name: str) -> None:
    pipeline = load(yaml.safe_dump(changed(VALID[name]))).pipeline

    assert ConsumerPipeline.model_validate(pipeline.model_dump(exclude_none=True)) == pipeline


def test_problems_come_in_the_order_of_the_file_and_name_its_lines() -> None:
    text = yaml.safe_dump(
        changed({"spec/replicas": -1, "metadata/name": "NO", "spec/stages/2/name": "claims"}), sort_keys=False
    )
    with pytest.raises(InvalidManifest) as caught:
        load(text)

    lines = text.splitlines()
    assert [lines[problem.line - 1].strip() for problem in caught.value.problems] == [
        "name: 'NO'",
        "replicas: -1",
        "- name: claims",
    ]


def test_the_whole_message_fits_a_terminal() -> None:
    text = yaml.safe_dump(changed({f"spec/x{number:03}": 1 for number in range(100)}))
    with pytest.raises(InvalidManifest) as caught:
        load(text, source="pipeline.yaml")

    lines = str(caught.value).splitlines()
    assert lines[0] == "pipeline.yaml has 100 problems:"
    assert lines[-1] == "  and 80 more"
    assert len(lines) == 42


def test_the_message_for_one_problem() -> None:
    text = yaml.safe_dump(changed({"spec/stages/1/map/function": "score"}), sort_keys=False)
    with pytest.raises(InvalidManifest) as caught:
        load(text, source="pipeline.yaml")

    line = next(number for number, line in enumerate(text.splitlines(), 1) if "function: score" in line)
    assert str(caught.value) == (
        "pipeline.yaml has a problem:\n"
        f'  spec.stages[1].map.function (stage score, line {line}): "score" is not a function reference\n'
        "    use module:name, for example flights:score"
    )

"""The pipeline's own test: `pytest examples/factors`. No broker is needed; the processes are real."""

from __future__ import annotations

from pathlib import Path

from millrace.testing import PipelineHarness

HERE = Path(__file__).parent


def test_numbers_come_out_with_their_factors_and_what_is_too_large_is_a_dead_letter() -> None:
    with PipelineHarness.of(HERE / "pipeline.yaml") as h:
        h.feed([{"n": 84}, {"n": 10**12}, {"n": 199_999}, {"m": 1}])
        h.run_to_end()
        found = sorted(h.values("numbers.factored"), key=str)
        assert found == [{"n": 199_999, "factors": [199_999]}, {"n": 84, "factors": [2, 2, 3, 7]}]
        invalid, raised = h.dead_letters
        assert invalid.reason == "1000000000000 is not from 1 to 39999999999"
        assert (raised.value, raised.reason) == (b'{"m":1}', "KeyError: 'n'")
        assert h.commits == {0: 4}

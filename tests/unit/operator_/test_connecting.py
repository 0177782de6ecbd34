"""Who is the same as who to a Kafka cluster: only then readings are shared."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from millrace_api.spec import Kafka
from millrace_operator.connecting import identity

_texts = st.dictionaries(st.sampled_from(["username", "password", "ca.crt"]), st.text(max_size=3))
_ways = st.tuples(
    st.sampled_from(["a:1", "b:1", "a:1,b:1"]),
    st.dictionaries(st.sampled_from(["client.rack", "debug.x"]), st.sampled_from(["1", "2"])),
    st.none() | _texts,
)


def way(bootstrap: str, properties: Mapping[str, str], secret: Mapping[str, str] | None) -> str:
    named = {"secretRef": {"name": "s"}} if secret is not None else None
    of = {"bootstrapServers": bootstrap, "properties": properties, "credentials": named}
    return identity(Kafka.model_validate(of), secret)


@given(_ways, _ways)
def test_it_is_the_same_only_with_the_very_same_brokers_credentials_and_properties(
    one: tuple[str, dict[str, str], dict[str, str] | None],
    other: tuple[str, dict[str, str], dict[str, str] | None],
) -> None:
    assert (way(*one) == way(*other)) == (one == other)


def test_it_does_not_depend_on_what_the_secret_is_called_and_tells_nothing_of_it() -> None:
    told = [
        identity(
            Kafka.model_validate({"bootstrapServers": "a:1", "credentials": {"secretRef": {"name": name}}}),
            {"username": "u", "password": "sesame"},
        )
        for name in ("one", "two")
    ]
    assert told[0] == told[1]
    assert "sesame" not in told[0]


def test_a_secret_that_is_not_there_is_not_the_same_as_no_credentials() -> None:
    named = Kafka.model_validate({"bootstrapServers": "a:1", "credentials": {"secretRef": {"name": "s"}}})
    assert identity(named, None) != identity(Kafka.model_validate({"bootstrapServers": "a:1"}), None)

"""Reading much of the broker at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from millrace.clock import Deadline
from millrace.connectivity.memory.faults import Call
from millrace.connectivity.ports import KafkaError, OffsetAndMetadata, TopicDescription
from millrace.connectivity.survey import Progress, Spots

if TYPE_CHECKING:
    from millrace.connectivity.memory.broker import MemoryBroker

_K = TypeVar("_K")
_T = TypeVar("_T")


class MemorySurvey:
    """Implements `survey.Survey`."""

    def __init__(self, broker: MemoryBroker, client_id: str) -> None:
        self._broker, self._client_id = broker, client_id

    def topics(
        self, names: Collection[str], timeout: float
    ) -> Mapping[str, TopicDescription | KafkaError | None]:
        def described(name: str) -> TopicDescription | None:
            found = self._broker.find_topic(name)
            return TopicDescription(found.name, found.id, len(found.logs)) if found else None

        return self._ask("topics", names, described, timeout)

    def offsets(
        self, asked: Collection[Spots], timeout: float
    ) -> Mapping[Spots, Mapping[int, int] | KafkaError]:
        return self._ask("offsets", asked, self._spots, timeout)

    def committed(
        self, asked: Collection[Progress], timeout: float
    ) -> Mapping[Progress, Mapping[int, OffsetAndMetadata] | KafkaError]:
        def read(one: Progress) -> Mapping[int, OffsetAndMetadata]:
            return self._broker.groups.read(one.group, one.topic, range(one.partitions), stable=False)

        return self._ask("committed", asked, read, timeout)

    def members(self, groups: Collection[str], timeout: float) -> Mapping[str, Sequence[str] | KafkaError]:
        return self._ask("members", groups, self._broker.groups.members, timeout)

    def close(self) -> None:
        pass

    def _spots(self, one: Spots) -> Mapping[int, int]:
        logs = {p: self._broker.log(one.topic, p) for p in range(one.partitions)}
        if isinstance(one.at, int):
            return {p: log.offset_at(one.at) for p, log in logs.items()}
        if one.at == "beginning":
            return {p: log.span(read_committed=True).beginning for p, log in logs.items()}
        return {p: log.span(read_committed=one.at == "stable end").end for p, log in logs.items()}

    def _ask(
        self, name: str, asked: Collection[_K], answer: Callable[[_K], _T], timeout: float
    ) -> dict[_K, _T | KafkaError]:
        broker = self._broker

        def effect() -> dict[_K, _T | KafkaError]:
            broker.settle()
            return {one: _or_error(answer, one) for one in asked}

        if not asked:
            return {}
        call = Call(self._client_id, "survey", name, {"count": len(asked)})
        return broker.faults.carry_out(call, effect, Deadline.after(broker.clock, timeout))


def _or_error(answer: Callable[[_K], _T], one: _K) -> _T | KafkaError:
    try:
        return answer(one)
    except KafkaError as error:
        return error

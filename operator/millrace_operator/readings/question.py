"""What a pipeline wants to know of Kafka, and how it is found out for many of them at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from millrace.channel.backlog import Backlog
from millrace.clock import Clock, Deadline
from millrace.connectivity.ports import KafkaError, Span, TopicDescription
from millrace.connectivity.survey import Progress, Spots, Survey
from millrace.errors import MillraceError
from millrace.ownership.control_rules import Records

_K = TypeVar("_K")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Channel:
    """Of the collect stage: its topic, who reads it, and after how many seconds a record there has waited for too long."""

    topic: str
    group: str
    age: float | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """Attributes:
    seeded: partitions of the source that have claims at least, as the epoch says.
    topics: to be described beside the source and the channel.
    """

    source: str
    group: str
    claims_group: str
    seeded: int = 0
    topics: frozenset[str] = frozenset()
    channel: Channel | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """Attributes:
    topics: None for one that is not there. If it is the source, nothing else is known.
    ends: of the source, by partition, high watermarks.
    strays: client ids that are subscribed in the group.
    backlog: None: no channel was asked about, or it is not there.
    """

    topics: Mapping[str, TopicDescription | None]
    claims: Records = field(default_factory=dict)
    mirror: Records = field(default_factory=dict)
    ends: Mapping[int, int] = field(default_factory=dict)
    strays: tuple[str, ...] = ()
    backlog: Backlog | None = None


Answer = Reading | MillraceError
"""What was read, or why it could not be."""


def read(
    survey: Survey, questions: Mapping[_K, Question], clock: Clock, deadline: Deadline
) -> Mapping[_K, Answer]:
    """To each question its answer. Raises KafkaError if that is the same one for all."""
    topics = survey.topics(_topics(questions.values()), deadline.remaining())
    plans = {who: _Plan.of(question, topics, clock.time()) for who, question in questions.items()}
    spots = survey.offsets(_all(plan.spots for plan in plans.values()), deadline.remaining())
    progress = survey.committed(_all(plan.progress for plan in plans.values()), deadline.remaining())
    members = survey.members(_all(plan.groups for plan in plans.values()), deadline.remaining())
    return {who: plan.answer(topics, spots, progress, members) for who, plan in plans.items()}


@dataclass(frozen=True, slots=True)
class _Plan:
    """What has to be asked for one question, once its topics are known."""

    question: Question
    claims: Progress | None = None
    mirror: Progress | None = None
    ends: Spots | None = None
    channel: tuple[Progress, Spots, Spots, Spots | None] | None = None

    @classmethod
    def of(
        cls, question: Question, topics: Mapping[str, TopicDescription | KafkaError | None], now: float
    ) -> _Plan:
        source = topics[question.source]
        if not isinstance(source, TopicDescription):
            return cls(question)
        claimed = max(source.partitions, question.seeded)
        return cls(
            question,
            Progress(question.claims_group, source.name, claimed),
            Progress(question.group, source.name, claimed),
            Spots(source.name, source.partitions, "end"),
            cls._of_channel(question.channel, topics, source.partitions, now),
        )

    @staticmethod
    def _of_channel(
        channel: Channel | None,
        topics: Mapping[str, TopicDescription | KafkaError | None],
        partitions: int,
        now: float,
    ) -> tuple[Progress, Spots, Spots, Spots | None] | None:
        described = topics[channel.topic] if channel is not None else None
        if channel is None or not isinstance(described, TopicDescription):
            return None
        name, there = channel.topic, min(partitions, described.partitions)
        since = None if channel.age is None else round((now - channel.age) * 1000)
        return (
            Progress(channel.group, name, there),
            Spots(name, there, "beginning"),
            Spots(name, there, "stable end"),
            None if since is None else Spots(name, there, since),
        )

    @property
    def spots(self) -> Collection[Spots]:
        of_channel = self.channel[1:] if self.channel is not None else ()
        return [spots for spots in (self.ends, *of_channel) if spots is not None]

    @property
    def progress(self) -> Collection[Progress]:
        of_channel = self.channel[0] if self.channel is not None else None
        return [one for one in (self.claims, self.mirror, of_channel) if one is not None]

    @property
    def groups(self) -> Collection[str]:
        return [self.question.group] if self.mirror is not None else []

    def answer(
        self,
        topics: Mapping[str, TopicDescription | KafkaError | None],
        spots: Mapping[Spots, Mapping[int, int] | KafkaError],
        progress: Mapping[Progress, Records | KafkaError],
        members: Mapping[str, Collection[str] | KafkaError],
    ) -> Answer:
        try:
            described = {name: _good(topics, name) for name in sorted(_topics([self.question]))}
            if self.claims is None or self.mirror is None or self.ends is None:
                return Reading(described)
            return Reading(
                described,
                _good(progress, self.claims),
                _good(progress, self.mirror),
                _good(spots, self.ends),
                tuple(_good(members, self.question.group)),
                self._backlog(spots, progress),
            )
        except KafkaError as error:
            return error

    def _backlog(
        self,
        spots: Mapping[Spots, Mapping[int, int] | KafkaError],
        progress: Mapping[Progress, Records | KafkaError],
    ) -> Backlog | None:
        if self.channel is None:
            return None
        group, beginning, end, since = self.channel
        begins, ends = _good(spots, beginning), _good(spots, end)
        spans = {p: Span(begins[p], ends[p]) for p in ends}
        committed = {p: record.offset for p, record in _good(progress, group).items()}
        return Backlog(spans, committed, _good(spots, since) if since is not None else {})


def _topics(questions: Collection[Question]) -> frozenset[str]:
    named = ({question.source, *question.topics} for question in questions)
    channels = {question.channel.topic for question in questions if question.channel is not None}
    return frozenset(channels.union(*named))


def _all(parts: Iterable[Collection[_K]]) -> Collection[_K]:
    """Each once: pipelines may have a source in common."""
    return list(dict.fromkeys(one for part in parts for one in part))


def _good(found: Mapping[_K, _T | KafkaError], key: _K) -> _T:
    answer = found[key]
    if isinstance(answer, KafkaError):
        raise answer
    return answer

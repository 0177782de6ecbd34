"""librdkafka's errors as the errors of the ports: what is wrong, where, and what to do.

An error reaches us in three ways: raised by the call, as an event among fetched messages, or through a client's
error callback, which alone has the cause when a call only says that time is up: a connection refused, a password not
accepted, a certificate not trusted. `Connection` keeps the latter for as long as they may explain a failure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from confluent_kafka import KafkaError as Native
from confluent_kafka import KafkaException

from millrace.connectivity import ports
from millrace.errors import ExitCode

_FENCED = {Native._FENCED, Native.INVALID_PRODUCER_EPOCH, Native.PRODUCER_FENCED}
_UNREACHABLE = {Native._ALL_BROKERS_DOWN, Native._TRANSPORT, Native._RESOLVE, Native.BROKER_NOT_AVAILABLE}
_TIMEOUT = {Native._TIMED_OUT, Native._TIMED_OUT_QUEUE, Native._MSG_TIMED_OUT, Native.REQUEST_TIMED_OUT}
_NOT_YET = {  # a coordinator that is being elected or loaded; librdkafka tries on, and says so when time is up
    Native.COORDINATOR_LOAD_IN_PROGRESS,
    Native.COORDINATOR_NOT_AVAILABLE,
    Native.NOT_COORDINATOR,
    Native.CONCURRENT_TRANSACTIONS,
}
_REFUSED = {Native._AUTHENTICATION, Native._SSL, Native.SASL_AUTHENTICATION_FAILED}
_FORBIDDEN = {
    Native.TOPIC_AUTHORIZATION_FAILED: "the topic",
    Native.GROUP_AUTHORIZATION_FAILED: "the consumer group",
    Native.CLUSTER_AUTHORIZATION_FAILED: "the cluster",
    Native.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "the transactional id",
}
_NO_TOPIC = {Native.UNKNOWN_TOPIC_OR_PART, Native._UNKNOWN_TOPIC, Native._UNKNOWN_PARTITION}
_TOO_LARGE = {Native.MSG_SIZE_TOO_LARGE, Native.INVALID_MSG_SIZE}
_CODES: dict[int, type[ports.KafkaError]] = {
    **dict.fromkeys(_FENCED, ports.Fenced),
    **dict.fromkeys(_UNREACHABLE, ports.BrokerUnreachable),
    **dict.fromkeys(_TIMEOUT, ports.TimedOut),
    **dict.fromkeys(_NOT_YET, ports.TimedOut),
    **dict.fromkeys(_REFUSED, ports.AuthenticationFailed),
    **dict.fromkeys(_FORBIDDEN, ports.AuthorizationFailed),
    **dict.fromkeys(_NO_TOPIC, ports.TopicMissing),
    **dict.fromkeys(_TOO_LARGE, ports.RecordTooLarge),
    Native.TOPIC_ALREADY_EXISTS: ports.TopicExists,
    Native.UNSTABLE_OFFSET_COMMIT: ports.Unstable,
    Native._QUEUE_FULL: ports.BufferFull,
}

REFUSALS_TOLERATED = 10  # of a client that worked before: a broker that restarts may refuse for a moment


@dataclass(slots=True)
class Connection:
    """What one client learned of its connections.

    Attributes:
        address: the bootstrap addresses.
        tried: who we said we are, without secrets.
    """

    address: str
    tried: str
    _worked: bool = False
    _refusals: int = 0
    _refusal: Native | None = None
    _lost: Native | None = field(default=None)

    def event(self, error: Native) -> None:
        """librdkafka's error callback; called from within the client's own calls, so it must not raise."""
        if error.code() in _REFUSED:
            self._refusal, self._refusals = error, self._refusals + 1
        elif error.code() in _UNREACHABLE and (
            self._lost is None or error.code() != Native._ALL_BROKERS_DOWN
        ):
            self._lost = error

    def works(self) -> None:
        """A call has succeeded: what went wrong before explains nothing any more."""
        if not self._worked or self._refusals or self._lost is not None:
            self._worked, self._refusals, self._refusal, self._lost = True, 0, None, None

    @property
    def troubled(self) -> bool:
        """Whether the broker refuses us, and not just for a moment."""
        return self._refusals > (REFUSALS_TOLERATED if self._worked else 0)

    def refusal(self) -> ports.AuthenticationFailed:
        reason = _message(self._refusal) if self._refusal else "refused"
        return ports.AuthenticationFailed(
            f"the broker at {self.address} refused us: {reason}",
            where=f"tried as {self.tried}",
            remedy=_remedy_for_refusal(reason),
        )

    def unreachable(self, doing: str) -> ports.BrokerUnreachable:
        why = self._refusal or self._lost
        reason = f": {_message(why)}" if why else ""
        return ports.BrokerUnreachable(
            f"{doing}: no broker answers at {self.address}{reason}",
            where=f"tried {self.tried}",
            remedy="check the address, that the broker runs, and that this listener expects what was tried "
            "(plain, TLS, SASL)",
        )

    def explains(self, error: Native) -> bool:
        """Whether time ran out because there is no connection."""
        return error.code() in _UNREACHABLE or (error.code() in _TIMEOUT and self._lost is not None)

    def error(self, error: Native, doing: str, where: str = "") -> ports.KafkaError:
        """The port's error for one that librdkafka returned while `doing`."""
        code = error.code()
        if code in _REFUSED or (code in _UNREACHABLE and self._lost is None):
            self.event(error)
        kept_out = code in _REFUSED or (
            self._refusal is not None and (code in _TIMEOUT or code in _UNREACHABLE)
        )
        if kept_out and self.troubled:
            return self.refusal()
        if kept_out or self.explains(error):
            return self.unreachable(doing)
        return translated(error, doing, where, self.tried)


def translated(error: Native, doing: str, where: str = "", tried: str = "") -> ports.KafkaError:
    """The port's error for an error of its own, whatever the connection."""
    code = error.code()
    kind = _CODES.get(code, ports.KafkaError)
    what = f"{doing}: {_message(error)}"
    if code in _FORBIDDEN:
        return kind(
            what,
            where=where,
            remedy=f"grant {tried or 'this user'} what it needs on {_FORBIDDEN[code]} (docs/credentials.md)",
        )
    if code in _FENCED:
        return kind(
            what, where=where, remedy="another process acts under this transactional id now: stop this one"
        )
    if code in _NO_TOPIC:
        return kind(what, where=where, remedy="create the topic, or give it `create:` in the manifest")
    if code in _TOO_LARGE:
        return kind(
            what, where=where, remedy="make the record smaller, or raise the topic's max.message.bytes"
        )
    return kind(what, where=where)


def native(error: KafkaException) -> Native:
    """The error inside an exception of confluent-kafka."""
    found = error.args[0]
    if isinstance(found, Native):
        return found
    return Native(Native._FAIL, str(error))


def bad_setting(error: KafkaException) -> ports.KafkaError:
    """A client that could not even be made: a property of the user's that librdkafka does not take."""
    return ports.KafkaError(
        f"librdkafka does not accept its settings: {_message(native(error))}",
        where="spec.kafka.properties",
        remedy="see https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md",
        code=ExitCode.MANIFEST,
    )


def _message(error: Native) -> str:
    """The text, without librdkafka's name for the connection before it and its state after it."""
    return re.sub(r"^\S+/(?:bootstrap|\d+): | \(after \d+ms in state \w+\)$", "", str(error.str()).strip())


def _remedy_for_refusal(reason: str) -> str:
    if "certificate verify failed" in reason:
        return "give the authority that signed the broker's certificate as ca.crt"
    if "mechanism" in reason and "supported" in reason:
        return "set sasl.mechanism to one that the broker supports"
    if "SSL" in reason:
        return "check that this listener expects TLS, ca.crt, and user.crt with user.key if it asks for a certificate"
    return "check username, password and sasl.mechanism in the Secret (or --secrets directory)"

"""The jars of the embedded broker: those of kafka-jars.lock."""

from pathlib import Path

from millrace.host.jars import JarSet

BROKER = JarSet(
    name="kafka",
    lock=Path(__file__).with_name("kafka-jars.lock"),
    purpose="the embedded broker",
    otherwise="or use a broker of your own: `--kafka HOST:PORT`",
)

"""Write worker/millrace/local/broker/kafka-jars.lock anew: python scripts/lock_kafka_jars.py KAFKA_VERSION LOG4J_VERSION

Resolves the broker's class path with Maven and writes down each jar with its checksum. Read the difference before you
commit it: from then on exactly these files run on users' machines.
"""

import hashlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

LOCK = Path(__file__).parents[1] / "worker" / "millrace" / "local" / "broker" / "kafka-jars.lock"
HEAD = """\
# The embedded broker's class path: Apache Kafka {kafka} (org.apache.kafka:kafka_2.13) and log4j-slf4j-impl {log4j}, without
# which the broker logs nothing, with all that they need at run time. One line a jar: Maven coordinates, SHA-256.
# Made anew by `python scripts/lock_kafka_jars.py KAFKA_VERSION LOG4J_VERSION` (needs Maven).
"""
POM = """\
<project><modelVersion>4.0.0</modelVersion>
<groupId>millrace</groupId><artifactId>lock</artifactId><version>1</version><packaging>pom</packaging><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{kafka}</version></dependency>
<dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId>
<version>{log4j}</version></dependency></dependencies></project>
"""
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"


def main(kafka: str, log4j: str) -> None:
    with tempfile.TemporaryDirectory() as work:
        pom, listed, jars = Path(work, "pom.xml"), Path(work, "list.txt"), Path(work, "jars")
        pom.write_text(POM.format(kafka=kafka, log4j=log4j))
        maven = ["mvn", "-B", "-q", "-f", str(pom), "-DincludeScope=runtime"]
        subprocess.run([*maven, f"{PLUGIN}:list", f"-DoutputFile={listed}"], check=True)
        subprocess.run([*maven, f"{PLUGIN}:copy-dependencies", f"-DoutputDirectory={jars}"], check=True)
        # lines such as "   org.apache.kafka:kafka_2.13:jar:4.3.1:runtime -- module ..."
        found = re.findall(r"^ +([\w.-]+):([\w.-]+):jar:([\w.-]+):\w+", listed.read_text(), re.MULTILINE)
        lines = [
            f"{group}:{artifact}:{version} "
            + hashlib.sha256((jars / f"{artifact}-{version}.jar").read_bytes()).hexdigest()
            for group, artifact, version in sorted(found)
        ]
    LOCK.write_text(HEAD.format(kafka=kafka, log4j=log4j) + "\n".join(lines) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])

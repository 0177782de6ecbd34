"""Write worker/millrace/collector/spark-jars.lock anew: python scripts/lock_spark_jars.py [TOKEN_PROVIDER_VERSION]

Resolves Spark's Kafka connector for the PySpark that is installed here, with all that it needs at run time, and writes
down each jar that PySpark's wheel lacks with its checksum, and which jars of the wheel serve for the rest. Give a
version of the token provider where the repository has none of PySpark's. Read the difference before you commit it:
from then on exactly these files run on users' machines.
"""

import hashlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

LOCK = Path(__file__).parents[1] / "worker" / "millrace" / "collector" / "spark-jars.lock"
HEAD = """\
# What PySpark {spark} (Scala {scala}) lacks to read from and write to Kafka. What else the connector needs at run time is
# in the wheel, and a second copy on the class path would be a conflict waiting to happen: the lines `wheel:` say which
# jar of the wheel serves for what the connector asks for.
"""
INSTEAD = """\
# Not every mirror has the token provider of {spark}; that of {other} works with it. The checksum of the former is not
# known here: it is the repository's word at the first fetch, and holds from then on.
"""
FOOT = (
    "# Made anew by `python scripts/lock_spark_jars.py [TOKEN_PROVIDER_VERSION]` (needs Maven and PySpark).\n"
)
SPARK = "org.apache.spark"
PROVIDER = "spark-token-provider-kafka-0-10"
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
WHEEL = Path(pyspark.__file__).parent / "jars"


def main(other: str | None) -> None:
    spark, scala = pyspark.__version__, next(WHEEL.glob("scala-library-*.jar")).stem.split("-")[-1]
    suffix = "_" + ".".join(scala.split(".")[:2])
    lacking, served = [], []
    with tempfile.TemporaryDirectory() as work:
        for group, artifact, version, jar in resolve(Path(work), spark, suffix, other or spark):
            if found := sorted(WHEEL.glob(f"{artifact}-[0-9]*.jar")):
                served.append(f"# wheel: {found[0].name} for {group}:{artifact}:{version}")
                continue
            wanted = f"{spark} - else {other}" if artifact == PROVIDER + suffix and other else version
            digest = hashlib.sha256(jar.read_bytes()).hexdigest()
            lacking.append(f"{group}:{artifact}:{wanted} {digest}")
    head = HEAD.format(spark=spark, scala=scala) + (INSTEAD.format(spark=spark, other=other) if other else "")
    LOCK.write_text(head + FOOT + "\n".join(lacking + served) + "\n")


def resolve(work: Path, spark: str, suffix: str, provider: str) -> list[tuple[str, str, str, Path]]:
    """Group, artifact, version and file of the connector and all that it needs."""
    pom, listed, jars = work / "pom.xml", work / "list.txt", work / "jars"
    apart = f"<exclusions><exclusion><groupId>{SPARK}</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    wanted = [(f"spark-sql-kafka-0-10{suffix}", spark), (PROVIDER + suffix, provider)]
    dependencies = "".join(
        f"<dependency><groupId>{SPARK}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        f"{apart}</dependency>"
        for artifact, version in wanted
    )
    pom.write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>millrace</groupId><artifactId>lock</artifactId>"
        f"<version>1</version><packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>"
    )
    maven = ["mvn", "-B", "-q", "-f", str(pom), "-DincludeScope=runtime"]
    subprocess.run([*maven, f"{PLUGIN}:list", f"-DoutputFile={listed}"], check=True)
    subprocess.run([*maven, f"{PLUGIN}:copy-dependencies", f"-DoutputDirectory={jars}"], check=True)
    # lines such as "   org.apache.kafka:kafka-clients:jar:3.9.2:runtime -- module ..."
    found = re.findall(r"^ +([\w.-]+):([\w.-]+):jar:([\w.-]+):\w+", listed.read_text(), re.MULTILINE)
    return [(*one, jars / f"{one[1]}-{one[2]}.jar") for one in sorted(found)]


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(__doc__)
    main(*sys.argv[1:] or [None])

# The collector on Spark: driver and executors, PySpark and its Kafka connector. From the repository's root:
#   docker build -f images/spark.Dockerfile -t millrace/spark .
# Runs as any user, with a root file system that is read-only, and /tmp writable (images/README.md).
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM $BASE_IMAGE AS java
# man1: Java's packages fail without it, and slim images lack it
RUN mkdir -p /usr/share/man/man1 \
 && apt-get update -q \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends openjdk-17-jdk-headless
# a Java with the modules that Spark asks for, a third of Debian's
RUN jlink --output /opt/java --compress=2 --no-header-files --no-man-pages --strip-java-debug-attributes \
    --add-modules java.se,jdk.charsets,jdk.crypto.ec,jdk.httpserver,jdk.incubator.vector,jdk.jfr,jdk.localedata,jdk.management,jdk.management.agent,jdk.naming.dns,jdk.net,jdk.security.auth,jdk.security.jgss,jdk.unsupported,jdk.zipfs

FROM $BASE_IMAGE AS packages
RUN python3 -m venv --without-pip /opt/millrace/venv \
 && ln -s "$(echo /opt/millrace/venv/lib/python3.*/site-packages)" /opt/millrace/packages \
 && echo /opt/millrace/program >/opt/millrace/packages/millrace.pth
COPY images/requirements/build.txt /build.txt
RUN pip install -q --require-hashes -r /build.txt
COPY images/requirements/spark.txt /requirements.txt
COPY images/spark/unneeded /unneeded
# PySpark is published as source only. --python: into that environment, with the pip of this stage
RUN pip wheel -q --no-deps --no-build-isolation --require-hashes -w /wheels -r /requirements.txt \
 && pip --python /opt/millrace/venv/bin/python install -q --no-deps --no-index /wheels/*.whl \
 && rm -r /wheels \
 && cd /opt/millrace/packages && sed '/^#/d' /unneeded | while read -r pattern; do rm -rf $pattern; done

FROM packages AS program
COPY pyproject.toml README.md LICENSE /source/
COPY crds /source/crds
COPY worker /source/worker
RUN pip wheel -q --no-deps --no-build-isolation -w /wheels /source \
 && pip --python /opt/millrace/venv/bin/python install -q --no-deps --target /opt/millrace/program /wheels/*.whl

# the jars of the connector's lock: those that are in images/jars already, else fetched by PySpark's Ivy
FROM program AS connector
COPY --from=java /opt/java /opt/java
# a pattern, since there need be no such folder; a COPY of nothing fails
COPY LICENSE images/jar[s] /jars/
ARG DEFAULT_ARTIFACT_REPOSITORY
ENV MILLRACE_CACHE=/jars JAVA_HOME=/opt/java
RUN /opt/millrace/venv/bin/python -c "from millrace.collector import jars; from millrace.host.jars import ensure; ensure(jars.CONNECTOR)"

FROM $BASE_IMAGE
RUN echo "millrace:x:65532:65532::/tmp:/usr/sbin/nologin" >>/etc/passwd && echo "millrace:x:65532:" >>/etc/group
COPY --from=java /opt/java /opt/java
COPY --from=packages /opt/millrace /opt/millrace
COPY --from=connector /jars /opt/millrace/jars
COPY images/spark/entrypoint /opt/millrace/entrypoint
COPY --from=program /opt/millrace/program /opt/millrace/program
ENV PATH=/opt/millrace/program/bin:/opt/millrace/venv/bin:/opt/java/bin:/usr/local/bin:/usr/bin:/bin \
    JAVA_HOME=/opt/java SPARK_HOME=/opt/millrace/packages/pyspark MILLRACE_CACHE=/opt/millrace/jars \
    PYSPARK_PYTHON=/opt/millrace/venv/bin/python PYSPARK_DRIVER_PYTHON=/opt/millrace/venv/bin/python \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOME=/tmp
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["/opt/millrace/entrypoint"]
CMD ["--help"]

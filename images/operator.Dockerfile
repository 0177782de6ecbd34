# The operator: `millrace-operator`. From the repository's root:
#   docker build -f images/operator.Dockerfile -t millrace/operator .
# Runs as any user, with a root file system that is read-only, and /tmp writable (images/README.md).
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM $BASE_IMAGE AS packages
RUN python3 -m venv --without-pip /opt/millrace/venv \
 && echo /opt/millrace/program >"$(echo /opt/millrace/venv/lib/python3.*/site-packages)/millrace.pth"
COPY images/requirements/operator.txt /requirements.txt
# --python: into that environment, with the pip of this stage
RUN pip --python /opt/millrace/venv/bin/python install -q --no-deps --only-binary=:all: --require-hashes -r /requirements.txt

FROM packages AS program
COPY images/requirements/build.txt /build.txt
RUN pip install -q --require-hashes -r /build.txt
COPY pyproject.toml README.md LICENSE /source/
COPY crds /source/crds
COPY worker /source/worker
COPY operator /source/operator
# the folder of its own makes a layer that holds the program and nothing else
RUN pip wheel -q --no-deps --no-build-isolation -w /wheels /source \
 && pip --python /opt/millrace/venv/bin/python install -q --no-deps --target /opt/millrace/program /wheels/*.whl

FROM $BASE_IMAGE
RUN echo "millrace:x:65532:65532::/tmp:/usr/sbin/nologin" >>/etc/passwd && echo "millrace:x:65532:" >>/etc/group
COPY --from=packages /opt/millrace/venv /opt/millrace/venv
COPY --from=program /opt/millrace/program /opt/millrace/program
ENV PATH=/opt/millrace/program/bin:/opt/millrace/venv/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOME=/tmp
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["millrace-operator"]
CMD ["--help"]

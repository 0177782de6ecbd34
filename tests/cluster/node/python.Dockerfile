# What a public slim Python image has: python, python3 and a pip that installs into it.
ARG DEBIAN
FROM $DEBIAN
RUN apt-get update -q \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends python3 python3-pip python3-venv \
 && ln -s python3 /usr/bin/python \
 && rm -f /usr/lib/python3*/EXTERNALLY-MANAGED \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*
ENV PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore

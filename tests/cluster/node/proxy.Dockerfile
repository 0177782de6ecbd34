# kube-proxy, the one component of a cluster that calls other programs.
ARG DEBIAN
FROM $DEBIAN
RUN apt-get update -q \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends iptables nftables conntrack kmod \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*
COPY kube-proxy /usr/local/bin/kube-proxy

# What of a node seldom changes: Debian with systemd, containerd and what kubelet and kube-proxy call.
ARG DEBIAN
FROM $DEBIAN
RUN apt-get update -q \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
      systemd dbus containerd runc \
      iptables nftables conntrack iproute2 ethtool socat kmod mount util-linux \
      procps curl jq hostname e2fsprogs \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/* \
 # a container is no machine: of systemd's units only the journal, containerd and ours
 && rm -f /lib/systemd/system/multi-user.target.wants/* /etc/systemd/system/*.wants/* \
      /lib/systemd/system/local-fs.target.wants/* \
      /lib/systemd/system/sockets.target.wants/*udev* /lib/systemd/system/sockets.target.wants/*initctl* \
      /lib/systemd/system/sysinit.target.wants/*udev* \
      /lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service \
 && ln -sf /lib/systemd/systemd /sbin/init \
 && systemctl mask systemd-binfmt.service systemd-modules-load.service systemd-udevd.service getty.target \
      console-getty.service \
 && printf '[Journal]\nReadKMsg=no\nStorage=volatile\n' >/etc/systemd/journald.conf

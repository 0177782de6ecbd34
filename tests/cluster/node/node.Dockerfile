# A kind node without the images that are preloaded into it (node.py). What kind asks of a node image: /kind/version,
# /kind/manifests/default-{cni,storage}.yaml, which it applies as they are; kubeadm, kubelet, kubectl, ctr, `crictl
# inspecti`; containerd at its usual socket; and the words that the entrypoint says.
ARG OS
FROM $OS
COPY bin/ /usr/bin/
COPY cni/ /opt/cni/bin/
COPY files/ /
COPY manifests/ /kind/manifests/
ARG KUBERNETES PODS SERVICES PAUSE_IMAGE PROVISIONER_IMAGE HELPER_IMAGE
RUN echo "$KUBERNETES" >/kind/version \
 && printf 'PODS=%s\nSERVICES=%s\n' "$PODS" "$SERVICES" >/kind/subnets \
 && sed -i "s,PAUSE_IMAGE,$PAUSE_IMAGE," /etc/containerd/config.toml \
 && sed -i "s,PROVISIONER_IMAGE,$PROVISIONER_IMAGE,; s,HELPER_IMAGE,$HELPER_IMAGE," /kind/manifests/*.yaml \
 && mkdir -p /etc/kubernetes/manifests /etc/cni/net.d \
 && systemctl enable containerd.service kubelet.service pod-network.service \
 && ctr oci spec | jq 'del(.process.rlimits)' >/etc/containerd/cri-base.json
# systemd looks for the one, and stops at the other only
ENV container=docker
STOPSIGNAL SIGRTMIN+3
ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]

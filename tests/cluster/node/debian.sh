#!/usr/bin/env bash
# debian.sh RELEASE IMAGE: the least Debian, from the mirror that this machine's apt uses, as a Docker image. What this
# machine needs to reach its registries (certificates, pip's settings), builds in the image need as well.
set -euo pipefail
release=$1
image=$2
new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT
mirror_of() { # suite: the mirror that apt has for it, if any
    apt-get indextargets --format '$(RELEASE) $(SITE)' 2>/dev/null | awk -v suite="$1" '$1 == suite {print $2; exit}'
}

debootstrap --variant=minbase --include=ca-certificates "$release" "$new" $(mirror_of "$release")
: >"$new/etc/apt/sources.list"
for suite in "$release" "$release-updates" "$release-security"; do
    mirror=$(mirror_of "$suite")
    [[ -z $mirror ]] || echo "deb $mirror $suite main" >>"$new/etc/apt/sources.list"
done
# where this machine is no such Debian
[[ -s $new/etc/apt/sources.list ]] || echo "deb http://deb.debian.org/debian $release main" >"$new/etc/apt/sources.list"
cp /etc/ssl/certs/ca-certificates.crt "$new/etc/ssl/certs/ca-certificates.crt"
# from these, packages' scripts make that file anew
cp -r /usr/local/share/ca-certificates/. "$new/usr/local/share/ca-certificates/"
[[ ! -f /etc/pip.conf ]] || cp /etc/pip.conf "$new/etc/pip.conf"
cat >"$new/etc/dpkg/dpkg.cfg.d/slim" <<'SLIM'
path-exclude=/usr/share/doc/*
path-exclude=/usr/share/man/*
path-exclude=/usr/share/locale/*
SLIM
rm -rf "$new"/var/lib/apt/lists/* "$new"/var/cache/apt/* "$new"/usr/share/{doc,man,locale,info}/* "$new"/var/log/*
# packages' scripts expect it, and fail without
mkdir -p "$new/usr/share/man/man1"
tar -C "$new" --numeric-owner -c . | docker import \
    -c 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' -c 'CMD ["/bin/bash"]' - "$image"

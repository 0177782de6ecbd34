#!/usr/bin/env bash
# build.sh OUT PROGRAM...: builds programs from Go modules, statically, into the folder OUT. Needs Go 1.21 or newer (it
# fetches a newer one by itself if a module asks for it). Where modules come from and how they are verified is for Go's
# own settings to say (GOPROXY, GOSUMDB). Go's caches make a second build quick.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/../versions.env"
out=$1
shift
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
# -mod=mod: go.mod and go.sum are made on the way
GOFLAGS="$(go env GOFLAGS) -mod=mod"
export GOFLAGS CGO_ENABLED=0 GOWORK=off
mkdir -p "$out"

main() {
    local program kubernetes=()
    for program; do
        case $program in
        kube* | crictl) kubernetes+=("$program") ;;
        etcd) own etcd "go.etcd.io/etcd/server/v3@$ETCD" ;;
        coredns) own coredns "github.com/coredns/coredns@$COREDNS" ;;
        pause) own pause ;;
        kind) theirs sigs.k8s.io/kind "$KIND" ;;
        helm) theirs helm.sh/helm/v3/cmd/helm "$HELM" ;;
        kwok) theirs sigs.k8s.io/kwok/cmd/kwok "$KWOK" ;;
        local-path-provisioner) theirs github.com/rancher/local-path-provisioner "$LOCAL_PATH_PROVISIONER" ;;
        ptp | loopback) theirs "github.com/containernetworking/plugins/plugins/main/$program" "$CNI" ;;
        host-local) theirs "github.com/containernetworking/plugins/plugins/ipam/$program" "$CNI" ;;
        portmap) theirs "github.com/containernetworking/plugins/plugins/meta/$program" "$CNI" ;;
        *)
            echo "build.sh: no such program: $program" >&2
            exit 2
            ;;
        esac
    done
    [[ ${#kubernetes[@]} = 0 ]] || kubernetes "${kubernetes[@]}"
}

# A module of its own for each: `go install PACKAGE@VERSION` refuses those whose go.mod has replaces, and what they ask of
# k8s.io/* would get in each other's way in one.
theirs() { # package, version
    enter "$1"
    quietly go get "$1@$2"
    compile "$1"
}

own() { # folder beside this script, module@version...: our main.go, their packages
    enter "$1"
    cp "$here/$1/main.go" .
    (($# == 1)) || quietly go get "${@:2}"
    quietly go mod tidy
    go build -trimpath -ldflags "-s -w" -o "$out/$1" .
}

# k8s.io/kubernetes is a module like any other, but it asks for its "staging" modules as v0.0.0 and replaces them by
# folders of its own, and a replace counts in the main module only. So the main module here replaces each by the release
# that is published with it: v1.34.4 goes with k8s.io/api v0.34.4.
kubernetes() { # programs, compiled in one go: what they share is most of them
    mkdir "$work/kubernetes"
    cd "$work/kubernetes"
    local program packages=() version=k8s.io/component-base/version
    for program; do
        if [[ $program = crictl ]]; then
            mkdir crictl
            cp "$here/crictl/main.go" crictl/
            packages+=(./crictl)
        else
            packages+=("k8s.io/kubernetes/cmd/$program")
        fi
    done
    local theirs
    theirs=$(go mod download -json "k8s.io/kubernetes@$KUBERNETES" | sed -n 's/.*"GoMod": "\(.*\)",/\1/p')
    {
        echo "module millrace.test/kubernetes"
        sed -n '/^go /p' "$theirs"
        echo "require k8s.io/kubernetes $KUBERNETES"
        # v0.0.0 exactly: those with a date behind it are published by themselves
        sed -n 's,^\t\(k8s.io/[^ ]*\) v0\.0\.0$,replace \1 => \1 v0.'"${KUBERNETES#v1.}"',p' "$theirs" | sort -u
    } >go.mod
    quietly go get "k8s.io/kubernetes@$KUBERNETES"
    # without these, kubeadm takes itself for v0.0.0 and refuses each configuration; client-go has its own
    local stamp="-X PKG.gitVersion=$KUBERNETES -X PKG.gitMajor=1 -X PKG.gitMinor=$(cut -d. -f2 <<<"$KUBERNETES")"
    stamp+=" -X PKG.gitTreeState=clean -X PKG.buildDate=1970-01-01T00:00:00Z"
    compile -ldflags "-s -w ${stamp//PKG/$version} ${stamp//PKG/k8s.io/client-go/pkg/version}" "${packages[@]}"
}

enter() { # name: a new, empty module
    mkdir -p "$work/$1"
    cd "$work/$1"
    quietly go mod init millrace.test/tool
}

compile() { # package, or flags and packages: each program is named after its package
    go build -trimpath -ldflags "-s -w" -o "$out/" "$@"
}

quietly() { # command...: says what it said only if it fails
    "$@" >"$work/log" 2>&1 || {
        cat "$work/log" >&2
        return 1
    }
}

main "$@"

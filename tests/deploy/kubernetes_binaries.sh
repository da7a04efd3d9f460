#!/usr/bin/env bash
# Put etcd, kube-apiserver and kube-controller-manager of Debian 12 (Kubernetes 1.20) into FOLDER, for the test end to end:
#
#     kubernetes_binaries.sh FOLDER
#
# Root, five to ten minutes, 3 GB.  Debian ships the last two as source only.
set -euo pipefail

folder=$(realpath -m "$1")
mkdir -p "$folder"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm main" \
    >/etc/apt/sources.list.d/dlatent-kubernetes-source.list
trap 'rm -rf "$scratch" /etc/apt/sources.list.d/dlatent-kubernetes-source.list' EXIT
apt-get update -q
apt-get install -qy --no-install-recommends dpkg-dev etcd-server golang-github-modern-go-reflect2-dev golang-go rsync
apt-get source -q --download-only kubernetes
dpkg-source --no-check -x kubernetes_*.dsc source
cd source

# The reflect2 of that time crashes with this Go at the first custom resource.
rm -r vendor/github.com/modern-go/reflect2
cp -r /usr/share/gocode/src/github.com/modern-go/reflect2 vendor/github.com/modern-go/
mkdir -p .go/src/k8s.io
ln -s ../../.. .go/src/k8s.io/kubernetes
printf 'KUBE_GIT_%s\n' COMMIT=debian TREE_STATE=clean VERSION=v1.20.2 MAJOR=1 MINOR=20 >"$scratch/version"
export GOPATH=$PWD/.go PATH=/usr/lib/go/bin:$PATH HOME=$scratch CGO_ENABLED=0 GO111MODULE=off
export KUBE_GIT_VERSION_FILE=$scratch/version
make WHAT="cmd/kube-apiserver cmd/kube-controller-manager"
cp _output/local/bin/linux/*/kube-apiserver _output/local/bin/linux/*/kube-controller-manager "$(command -v etcd)" "$folder"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs what a fresh Debian 12 or Ubuntu (22.04, 24.04) machine lacks for the
# groups that are named, and says what it does. It is silent and quick when
# nothing is missing, so every make target that needs something calls it.
#
#   scripts/install-deps.sh build       make, git and a Go that can build go.mod
#   scripts/install-deps.sh demo        build, a web server, its load generator and a router
#   scripts/install-deps.sh kubernetes  build, and what Kubernetes runs on: etcd, containerd, network plugins
#   scripts/install-deps.sh test        demo, a C compiler (race detector), BIRD, what reads alerts, units and keepalived's files
#   scripts/install-deps.sh octavia     build, and OpenStack's programs with what checks Python
#   scripts/install-deps.sh test-ci     test, image, kubernetes, octavia, a guest machine, another BGP speaker, a DNS server, Podman
#   scripts/install-deps.sh test-all    test-ci, release, openstack, more guest machines, emulation, a browser, schemathesis, kolla
#   scripts/install-deps.sh openstack   demo, octavia, and a database server
#   scripts/install-deps.sh generate    build, and the compiler for BPF
#   scripts/install-deps.sh image       build, and the tool that makes container images
#   scripts/install-deps.sh release     image, ssh-keygen, which signs, and flit_core, which makes wheels
#   scripts/install-deps.sh verify      generate, and the linters that are not Go
#
# Where no Go is new enough, one is put at $XDG_CACHE_HOME/fairlead/go (by
# default ~/.cache/fairlead/go), where the Makefile looks first. Programs in Python are
# put in the same folder, where the tests that run them look.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The Go release that is fetched for a machine whose own is too old.
readonly go_release=1.26.8

# A GOROOT of the environment belongs to another Go than the one that is found here.
unset GOROOT
readonly cache="${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/fairlead"
PATH="$cache/go/bin:$PATH:/usr/local/go/bin:/usr/sbin:/sbin"

# Debian packages that are missing, in the order they were asked for.
missing=()

# Virtual environments of Python that are asked for.
venvs=()

say() { printf 'install-deps: %s\n' "$*"; }

die() {
	printf 'install-deps: %s\n' "$*" >&2
	exit 1
}

# want COMMAND|FILE [PACKAGE] notes the package if the machine has no such
# command or file. The package is named like the command unless it is given.
want() {
	local package=${2:-$1}
	if [[ $1 == /* ]]; then
		[[ -e $1 ]] && return
	elif command -v "$1" >/dev/null; then
		return
	fi
	[[ " ${missing[*]} " == *" $package "* ]] || missing+=("$package")
}

# want_browser asks for the browser that looks at the status page. Ubuntu has none
# as a package, only as a snap: the test that needs it is skipped there.
want_browser() {
	grep -qx 'ID=debian' /etc/os-release || return 0
	want chromium
	want /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf fonts-dejavu-core
}

# want_venv NAME asks for a virtual environment of Python, and for what makes one with pip in it.
want_venv() {
	venvs+=("$1")
	python3 -c 'import ensurepip, venv' 2>/dev/null || [[ " ${missing[*]} " == *" python3-venv "* ]] || missing+=(python3-venv)
}

want_group() {
	case $1 in
	build)
		want make
		want git
		want /etc/ssl/certs/ca-certificates.crt ca-certificates
		want go golang-go
		;;
	demo)
		want_group build
		want nginx
		want wrk
		want /etc/services netbase # wrk looks the port of "http" up
		want curl
		want /usr/lib/frr/bgpd frr
		want ip iproute2 # builds labs
		;;
	kubernetes)
		want_group build
		want etcd etcd-server
		want containerd
		want runc
		want /usr/lib/cni/ptp containernetworking-plugins
		want buildah # makes images out of files
		want busybox busybox-static
		want nft nftables
		want iptables # how kube-router enforces network policies, and "fairlab bench forward" compares with it
		want ipset
		;;
	test)
		want_group demo
		want gcc
		want /usr/include/stdlib.h libc6-dev
		want bird bird2 # speaks BFD and BGP with the packages' tests, as FRR does
		want keepalived # reads the examples of its import
		want nft nftables
		want systemd-analyze systemd # reads the unit of deploy/
		want promtool prometheus # what alerts are tested with, and scrapes a lab
		;;
	octavia)
		want_group build
		want_venv openstack
		;;
	openstack)
		want_group demo
		want_group octavia
		want mariadbd mariadb-server
		;;
	test-ci)
		want_group test
		want_group release # which clusters install
		want_group kubernetes
		want_group octavia
		want exabgp
		want dnsmasq dnsmasq-base # names of servers that change
		want podman # runs a balancer as the guide says
		want qemu-system-x86_64 qemu-system-x86
		want xz xz-utils
		want zstd
		;;
	test-all)
		want_group test-ci
		want_group release
		want_group openstack
		want haproxy # which "fairlab bench http" compares with
		want qemu-aarch64-static qemu-user-static # runs the image for arm64
		want qemu-system-aarch64 qemu-system-arm
		want_browser
		want_venv schemathesis
		want_venv kolla
		;;
	generate)
		want_group build
		want clang-19
		want llvm-strip-19 llvm-19
		want /usr/include/bpf/bpf_helpers.h libbpf-dev
		want /usr/include/linux/bpf.h linux-libc-dev
		;;
	image)
		want_group build
		want buildah
		;;
	release)
		want_group image
		want ssh-keygen openssh-client
		want_venv flit
		;;
	verify)
		want_group generate
		want clang-format-19
		want shellcheck
		;;
	*)
		die "no group is named '$1': use build, demo, kubernetes, test, octavia, test-ci, test-all, generate, image, openstack, release or verify"
		;;
	esac
}

apt() {
	DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=0 "$@" </dev/null
}

# Debian starts a service as soon as it is installed. This forbids it until the
# script ends, unless the machine has a rule of its own.
forbid_service_starts() {
	local policy=/usr/sbin/policy-rc.d
	[[ -e $policy ]] && return
	# shellcheck disable=SC2064 # the path is local and has to be known at exit
	trap "rm -f $policy" EXIT
	printf '#!/bin/sh\n# Written by fairlead scripts/install-deps.sh while it installs packages.\nexit 101\n' >$policy
	chmod 755 $policy
}

install_missing() {
	((${#missing[@]})) || return 0
	command -v apt-get >/dev/null ||
		die "this machine has no apt-get; install by hand what these Debian packages hold: ${missing[*]}"
	((EUID == 0)) || die "must be root to install: ${missing[*]}"

	say "installing ${missing[*]}"
	apt update || die "apt-get update: see above"
	forbid_service_starts
	apt install -y --no-install-recommends "${missing[@]}" >/dev/null ||
		die "apt-get install: see above; packages: ${missing[*]}"
	# The labs run servers and routers of their own in network namespaces. The
	# machine's must not take their ports at the next boot just because a test needed
	# the binary.
	local package
	for package in nginx haproxy frr bird2 exabgp keepalived prometheus containerd etcd-server mariadb-server; do
		[[ " ${missing[*]} " != *" $package "* ]] || disable "$(service_of "$package").service"
	done
}

# service_of PACKAGE prints the name of its service.
service_of() {
	case $1 in
	bird2) echo bird ;;
	etcd-server) echo etcd ;;
	mariadb-server) echo mariadb ;;
	*) echo "$1" ;;
	esac
}

# disable SERVICE keeps a service from being started, also by the first systemd to
# run on what is an image yet, and stops it if a rule of the machine's let it start.
disable() {
	local now=()
	command -v systemctl >/dev/null || return 0
	[[ ! -d /run/systemd/system ]] || now=(--now)
	say "disabling $1, which came with the package"
	systemctl --quiet disable "${now[@]}" "$1"
}

# can_build [COMMAND] says whether this go command is as new as go.mod asks for.
# What it would download by itself doesn't count: distributions differ in that.
can_build() {
	local wanted have
	wanted=$(awk '$1 == "go" { print $2; exit }' go.mod)
	have=$(cd / && GOTOOLCHAIN=local "${1:-go}" env GOVERSION 2>/dev/null) || return 1
	printf '%s\n%s\n' "$wanted" "${have#go}" | sort -C -V
}

# provide_go makes $cache/go a Go that can build: one that the machine has in
# addition to the old one on PATH, or else a downloaded one.
provide_go() {
	local root
	mkdir -p "$cache"
	for root in /usr/local/go /usr/lib/go-*; do
		if can_build "$root/bin/go"; then
			ln -sfnT "$root" "$cache/go"
			break
		fi
	done
	hash -r
	can_build || fetch_go
	say "using $(go version) at $cache/go"
}

# The Go module proxy serves whole toolchains as a module, checked against the
# checksum database, and any Go since 1.18 can download a module. The archive
# holds no executable bits; go itself sets the same ones when it switches.
fetch_go() {
	local arch work answer toolchain
	case $(uname -m) in
	x86_64) arch=amd64 ;;
	aarch64) arch=arm64 ;;
	*) die "no Go for $(uname -m) is known here; put Go $go_release or newer on PATH" ;;
	esac
	say "fetching Go $go_release with $(cd / && GOTOOLCHAIN=local go env GOVERSION) through the Go module proxy"

	work=$(mktemp -d)
	echo 'module bootstrap' >"$work/go.mod"
	answer=$(cd "$work" && env -u GOFLAGS GOTOOLCHAIN=local GO111MODULE=on GOWORK=off \
		go mod download -json "golang.org/toolchain@v0.0.1-go$go_release.linux-$arch") || true
	rm -r "$work"
	toolchain=$(sed -n 's/^\t"Dir": "\(.*\)",$/\1/p' <<<"$answer")
	[[ -d $toolchain ]] || die "Go $go_release: $answer"

	chmod -R a+x "$toolchain/bin" "$toolchain/pkg/tool"
	ln -sfnT "$toolchain" "$cache/go"
	hash -r
	can_build || die "Go $go_release: it does not run at $cache/go"
}

# provide_venv NAME makes $cache/NAME a virtual environment of Python with what
# tools/NAME.txt lists, unless it was made of the same by the same Python.
provide_venv() {
	local venv=$cache/$1 pins=tools/$1.txt made_of
	if [[ $1 =~ ^(openstack|kolla)$ ]] && ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
		say "no $1, which needs Python 3.11: its tests are skipped"
		return
	fi
	made_of=$(python3 --version && cat "$pins")
	[[ ! -e $venv/made-of || $(<"$venv/made-of") != "$made_of" ]] || return 0
	say "installing $1 at $venv"
	mkdir -p "$cache"
	python3 -m venv --clear "$venv" || die "python3 -m venv: see above"
	# Debian 12's pip builds simplegeneric, which has no wheel, by PEP 517 only with the option.
	"$venv/bin/pip" --quiet --disable-pip-version-check install --require-hashes --prefer-binary --use-pep517 -r "$pins" ||
		die "pip install -r $pins: see above"
	echo "$made_of" >"$venv/made-of"
}

(($#)) || die "name at least one group: build, demo, kubernetes, test, octavia, test-ci, test-all, generate, image, openstack, release, verify"
for group; do
	want_group "$group"
done
install_missing
can_build || provide_go
for venv in "${venvs[@]}"; do
	provide_venv "$venv"
done

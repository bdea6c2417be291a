#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
#   scripts/image.sh ARCHIVE NAME:TAG VERSION REVISION LICENSES ARCH=BINARY...
#
# Puts binaries and a file of licences into a container image for these architectures,
# an OCI archive of that name, and prints its name and digest. "make image" and
# scripts/release.sh call it. The same files, names and time give the same bytes: the
# time is SOURCE_DATE_EPOCH (reproducible-builds.org), by default that of the commit. No
# daemon is asked, and nothing is left in the machine's own storage of images.
set -euo pipefail

(($# > 5)) || {
	echo "usage: scripts/image.sh ARCHIVE NAME:TAG VERSION REVISION LICENSES ARCH=BINARY..." >&2
	exit 2
}
readonly archive=$1 name=$2 version=$3 revision=$4 licenses=$5
root=$(dirname "${BASH_SOURCE[0]}")/..
epoch=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct)}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The driver vfs needs nothing from the kernel, so that this works in containers too.
buildah() { command buildah --root "$work/root" --runroot "$work/run" --storage-driver vfs "$@"; }

install -D --mode=644 "$licenses" "$work/context/LICENSES.txt"
for binary in "${@:6}"; do
	arch=${binary%%=*}
	install -D --mode=755 "${binary#*=}" "$work/context/$arch/fairlead"
	buildah build --quiet --file "$root/deploy/image/Containerfile" --format oci --platform "linux/$arch" \
		--manifest image --timestamp "$epoch" --identity-label=false \
		--build-arg VERSION="$version" --build-arg REVISION="$revision" --build-arg BINARY="$arch/fairlead" \
		--build-arg CREATED="$(date --utc --date="@$epoch" +%Y-%m-%dT%H:%M:%SZ)" \
		"$work/context" >/dev/null
done
buildah manifest push --all --quiet --digestfile "$work/digest" image "oci:$work/layout:$name"
tar --directory="$work/layout" --create --file="$work/image.tar" --sort=name --format=ustar \
	--owner=0 --group=0 --numeric-owner --mtime="@$epoch" --mode=u=rwX,go=rX blobs index.json oci-layout
mv "$work/image.tar" "$archive"
echo "$name $(<"$work/digest")"

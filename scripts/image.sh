#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
#   scripts/image.sh BINARY ARCHIVE NAME:TAG VERSION REVISION
#
# Puts the binary into a container image, an OCI archive of that name, and prints
# its digest. "make image" calls it. The same binary, names and time give the same
# digest: the time is SOURCE_DATE_EPOCH (reproducible-builds.org), by default that
# of the commit. No daemon is asked, and nothing is left in the machine's own
# storage of images.
set -euo pipefail

(($# == 5)) || {
	echo "usage: scripts/image.sh BINARY ARCHIVE NAME:TAG VERSION REVISION" >&2
	exit 2
}
readonly binary=$1 archive=$2 name=$3 version=$4 revision=$5
root=$(dirname "${BASH_SOURCE[0]}")/..
epoch=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct)}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
install -D --mode=755 "$binary" "$work/context/fairlead"

# The driver vfs needs nothing from the kernel, so that this works in containers too.
buildah --root "$work/root" --runroot "$work/run" --storage-driver vfs build --quiet \
	--file "$root/deploy/image/Containerfile" --format oci --arch "$(go env GOARCH)" \
	--timestamp "$epoch" --identity-label=false --iidfile "$work/id" \
	--build-arg VERSION="$version" --build-arg REVISION="$revision" \
	--build-arg CREATED="$(date --utc --date="@$epoch" +%Y-%m-%dT%H:%M:%SZ)" \
	--tag image "$work/context" >/dev/null
buildah --root "$work/root" --runroot "$work/run" --storage-driver vfs push --quiet \
	--digestfile "$work/digest" image "oci-archive:$work/image.tar:$name"
mv "$work/image.tar" "$archive"
echo "$archive: $name $(<"$work/digest")"

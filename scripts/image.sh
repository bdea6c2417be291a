#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
#   scripts/image.sh NAME:TAG VERSION REVISION [FOLDER]
#
# Puts bin/fairlead into the container image bin/fairlead-image.tar (an OCI archive)
# and prints its digest; another folder than bin has both, if one is given. "make image" calls it. The same binary, names and time give
# the same digest: the time is SOURCE_DATE_EPOCH (reproducible-builds.org), by
# default that of the commit. No daemon is asked, and nothing is left in the
# machine's own storage of images.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

(($# == 3 || $# == 4)) || {
	echo "usage: scripts/image.sh NAME:TAG VERSION REVISION [FOLDER]" >&2
	exit 2
}
readonly name=$1 version=$2 revision=$3 folder=${4:-bin}
readonly archive=$folder/fairlead-image.tar
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
install -D --mode=755 "$folder/fairlead" "$work/context/fairlead"

# The driver vfs needs nothing from the kernel, so that this works in containers too.
buildah --root "$work/root" --runroot "$work/run" --storage-driver vfs build --quiet \
	--file deploy/image/Containerfile --format oci --arch "$(go env GOARCH)" \
	--timestamp "$epoch" --identity-label=false --iidfile "$work/id" \
	--build-arg VERSION="$version" --build-arg REVISION="$revision" \
	--build-arg CREATED="$(date --utc --date="@$epoch" +%Y-%m-%dT%H:%M:%SZ)" \
	--tag image "$work/context" >/dev/null
buildah --root "$work/root" --runroot "$work/run" --storage-driver vfs push --quiet \
	--digestfile "$work/digest" image "oci-archive:$work/image.tar:$name"
mv "$work/image.tar" "$archive"
echo "$archive: $name $(<"$work/digest")"

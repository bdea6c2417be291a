#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
#   scripts/release.sh [DIR]
#
# Makes a release of this commit in DIR (dist). "make release" calls it, and so do
# tests. The same commit gives the same bytes, in any folder and clone. Environment:
#
#   IMAGE_REPOSITORY  what the image is called; a registry's makes chart and manifest
#                     name the image by its digest (localhost/fairlead)
#   RELEASE_URL       where the files of the release will be, from where krew downloads
#                     the plugin of kubectl (https://localhost)
#   ARCHITECTURES     the processors, for tests that need one's only (amd64 arm64)
#   SIGNING_KEY       the SSH key that signs SHA256SUMS (none)
#   SOURCE_DATE_EPOCH the time of everything (the commit's)
#
# A commit with the tag vVERSION is release VERSION, which is the chart's. Others are
# called after the chart's version and the commit.
set -euo pipefail
export LC_ALL=C TZ=UTC
umask 022
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly repository=${IMAGE_REPOSITORY:-localhost/fairlead} chart=deploy/helm/fairlead
readonly url=${RELEASE_URL:-https://localhost}
read -ra architectures <<<"${ARCHITECTURES:-amd64 arm64}"
readonly architectures
dist=$(realpath -m "${1:-dist}")
readonly dist

die() {
	printf 'release: %s\n' "$*" >&2
	exit 1
}

[[ ! -e $dist || -e $dist/SHA256SUMS ]] || die "$dist isn't a release: remove it, or name another folder"
[[ $url =~ ^https?://[A-Za-z0-9._~:/%+-]+$ ]] || die "RELEASE_URL $url: want a URL without a query"
dirty=$(git status --porcelain) || die "there is no git repository here"
dirty=${dirty:+-dirty}
[[ -z $dirty || -z ${SIGNING_KEY:-} ]] || die "the tree has changes, which no release is signed with: commit them"
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
revision=$(git rev-parse HEAD)$dirty
base=$(sed -n 's/^version: //p' $chart/Chart.yaml)
version=$base
if tag=$(git describe --tags --exact-match --match 'v*' 2>/dev/null); then
	[[ $tag == "v$version" ]] || die "the tag is $tag, but $chart/Chart.yaml has version $version"
	version+=$dirty
else
	version+=-g$(git rev-parse --short=12 HEAD)$dirty
fi

# One Go release, whichever the machine has, and no settings of a user's.
GOTOOLCHAIN=go$(sed -n 's/^readonly go_release=//p' scripts/install-deps.sh)
export GOTOOLCHAIN GOFLAGS=-trimpath GOENV=off GOWORK=off CGO_ENABLED=0 GOOS=linux GOAMD64=v1 GOARM64=v8.0
unset GOEXPERIMENT GOFIPS140 FAIRLEAD_SOCKET POD_NAMESPACE # the last two are defaults of flags, in manual pages

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
readonly out=$work/dist
mkdir "$out"

helm() { go tool -modfile=tools/helm/go.mod helm "$@"; }
tool() { go -C tools run ./release "$@"; }

# pack FOLDER PATH... writes a tar archive of what is in the folder.
pack() {
	tar --directory="$1" --create --sort=name --format=ustar --owner=0 --group=0 --numeric-owner \
		--mtime="@$SOURCE_DATE_EPOCH" --mode=u=rwX,go=rX "${@:2}"
}

for arch in "${architectures[@]}"; do
	GOARCH=$arch go build -buildvcs=false -o "$out/fairlead-linux-$arch" -ldflags "-s -w \
		-X fairlead.io/fairlead/internal/version.Version=$version -X fairlead.io/fairlead/internal/version.Revision=$revision" \
		./cmd/fairlead
done
install -m 644 deploy/systemd/fairlead.service deploy/systemd/fairlead-apiserver.service "$out/"
"$out/fairlead-linux-$(go env GOHOSTARCH)" man "$work/man"
pack "$work" man | gzip -9n >"$out/fairlead-man.tar.gz"
# A commit without a tag has a local version of Python's (PEP 440).
suffix=${version#"$base"}
suffix=${suffix/-/+}
mkdir "$work/octavia"
cp -r LICENSE octavia/{README.md,pyproject.toml,src} "$work/octavia/"
sed -i "s/^version = .*/version = \"$base${suffix//-/.}\"/" "$work/octavia/pyproject.toml"
(cd "$work/octavia" && "${XDG_CACHE_HOME:-$HOME/.cache}/fairlead/flit/bin/python" -c 'import sys; from flit_core import buildapi
buildapi.build_wheel(sys.argv[1]); buildapi.build_sdist(sys.argv[1])' "$out")

tool licenses >"$out/LICENSES.txt"
tool sbom "$version" "$out"/fairlead-linux-* "$out"/*.whl >"$out/fairlead.spdx.json"

# The plugin of kubectl is the same executable by another name.
plugin=(-e "s#VERSION#$version#" -e "s#URL#${url%/}#")
images=()
for arch in "${architectures[@]}"; do
	mkdir "$work/$arch"
	ln "$out/fairlead-linux-$arch" "$work/$arch/kubectl-fairlead"
	cp "$out/LICENSES.txt" "$work/$arch/"
	archive=$out/kubectl-fairlead-linux-$arch.tar.gz
	pack "$work/$arch" LICENSES.txt kubectl-fairlead | gzip -4n >"$archive" # 5 % larger than with -9, in a sixth of the time
	sum=$(sha256sum <"$archive")
	plugin+=(-e "s#SHA256_${arch^^}#${sum%% *}#")
	images+=("$arch=$out/fairlead-linux-$arch")
done
sed "${plugin[@]}" deploy/krew/kubectl-fairlead.yaml >"$out/kubectl-fairlead.yaml"

image=$(scripts/image.sh "$out/fairlead-image.tar" "$repository:$version" "$version" "$revision" "$out/LICENSES.txt" "${images[@]}")

cp -r $chart "$work/fairlead"
if [[ $repository != localhost/* ]]; then
	sed -i -e "s#^  repository: .*#  repository: $repository#" -e "s#^  digest: .*#  digest: ${image##* }#" "$work/fairlead/values.yaml"
fi
helm package "$work/fairlead" --version "$version" --app-version "$version" --destination "$work" >/dev/null
# Helm writes the time of now into the archive.
mkdir "$work/plain"
tar --directory="$work/plain" --extract --touch --file="$work/fairlead-$version.tgz"
pack "$work/plain" fairlead | gzip -9n >"$out/fairlead-$version.tgz"
tool chart "$out/fairlead-$version.tgz" "$work/layout"
pack "$work/layout" blobs index.json oci-layout >"$out/fairlead-chart.tar"
scripts/manifests.sh "" "$out/fairlead.yaml" "$out/fairlead-$version.tgz"

(cd "$out" && sha256sum -- * >"$work/SHA256SUMS" && mv "$work/SHA256SUMS" .)
[[ -z ${SIGNING_KEY:-} ]] || ssh-keygen -q -Y sign -f "$SIGNING_KEY" -n file "$out/SHA256SUMS"

rm -rf "$dist"
mkdir -p "$(dirname "$dist")"
mv "$out" "$dist"
echo "$dist: fairlead $version, $image"

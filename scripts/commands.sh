#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Writes docs/reference/commands.md from the help texts of both binaries. "make generate"
# calls it.
# shellcheck disable=SC2016 # the backquotes are Markdown
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
CGO_ENABLED=0 go build -trimpath -o "$bin" ./cmd/fairlead ./cmd/fairlab

# describe COMMAND... prints the help of a command and of those below it.
describe() {
	local help name
	help=$("$bin/$1" "${@:2}" --help)
	printf '\n%s %s\n\n```text\n%s\n```\n' "$(printf '#%.0s' $(seq $(($# < 3 ? $# + 1 : 3))))" "$*" "$help"
	while read -r name; do
		[[ $name == completion || $name == help ]] || describe "$@" "$name"
	done < <(sed -n '/^Available Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' <<<"$help")
}

{
	echo '# Commands'
	echo
	echo 'Made by `scripts/commands.sh` (`make generate`) from the help texts. `fairlead` is the product, `fairlab` the'
	echo 'laboratory. `fairlead completion` and `fairlab completion` print completions for a shell.'
	describe fairlead
	describe fairlab
} >docs/reference/commands.md

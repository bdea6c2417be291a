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
unset FAIRLEAD_SOCKET POD_NAMESPACE # defaults of flags
CGO_ENABLED=0 go build -trimpath -o "$bin" ./cmd/fairlead ./cmd/fairlab
ln -s fairlead "$bin/kubectl-fairlead"

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
	echo 'Made by `scripts/commands.sh` (`make generate`) from the help texts. `fairlead` is the product, and by the name'
	cat <<-'END'
	`kubectl-fairlead` a [plugin of kubectl](../guides/kubernetes.md#all-nodes); `fairlab` is the laboratory.

	- **Exit status**: 0, 1 for a failure, 2 for an error of the command line, others where a command says so.
	- **Output**: `-o json` and `-o yaml` have the same fields, for programs. With `--watch` JSON is one line for each
	  change, YAML one document.
	- **Environment**: `FAIRLEAD_SOCKET` is the socket of commands without `--socket`, of an agent or a reflector.
	- **Completion**: `source <(fairlead completion bash)` has the shell complete commands, flags and their values, and the
	  names of services, backends and drains of the running agent; `fairlab completion` those of labs and hosts. There are
	  completions for zsh, fish and PowerShell, too.
	- **Manual pages**: `fairlead man /usr/local/share/man/man1` and `fairlab man` write them.
	END
	describe fairlead
	describe kubectl-fairlead
	describe fairlab
} >docs/reference/commands.md

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs every check that is not a test and says at the end which ones failed.
# "make verify" installs what it needs and calls it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# As scripts/test.sh does, so that what one of them has compiled serves the other.
GOFLAGS="$(go env GOFLAGS) -trimpath"
export GOFLAGS CGO_ENABLED=0

failed=() unchecked=()

# The status of a check that can't be made here; its last line says why.
readonly not_checked=75

# check NAME COMMAND... runs one check; what it prints is shown unless it passes.
check() {
	local name=$1 output status=0 start=$SECONDS
	shift
	output=$("$@" 2>&1) || status=$?
	case $status in
	0)
		printf 'ok    %s (%ds)\n' "$name" $((SECONDS - start))
		return
		;;
	"$not_checked")
		printf 'NOT CHECKED: %s (%ds)\n' "$name" $((SECONDS - start))
		unchecked+=("$name (${output##*$'\n'})")
		;;
	*)
		printf 'FAIL  %s (%ds)\n' "$name" $((SECONDS - start))
		failed+=("$name")
		;;
	esac
	grep -v '^go: downloading ' <<<"$output" || true
}

tool() { go tool -modfile=tools/go.mod "$@"; }
helm_tool() { go tool -modfile=tools/helm/go.mod "$@"; }

# files PATTERN... lists the tree's files, also those that are not committed yet.
files() { git ls-files -z --cached --others --exclude-standard -- "$@"; }

lint() { tool golangci-lint run; }

modules_are_tidy() {
	local module
	for module in . tools tools/helm test/kubeall test/kuberouter; do
		go -C "$module" mod tidy -diff || return 1
	done
}

c_is_formatted() { files '*.c' '*.h' | xargs -0r clang-format-19 --dry-run -Werror; }

shell_is_clean() { files '*.sh' .ci/run | xargs -0r shellcheck; }

# Helm, built like this, assumes an ancient version of Kubernetes.
chart_is_clean() { helm_tool helm lint --strict --quiet --kube-version 1.36.0 deploy/helm/fairlead; }

# The objects of the chart's defaults match the schemas of Kubernetes and of our own
# kinds; the tests of deploy/helm validate those of other values.
manifests_conform() (
	schemas=$(mktemp -d)
	trap 'rm -rf "$schemas"' EXIT
	go -C tools run ./kubeschema "$schemas" &&
		scripts/manifests.sh "" "$schemas/fairlead.yaml" &&
		helm_tool kubeconform -strict -summary -schema-location "$schemas/{{.ResourceKind}}{{.KindSuffix}}.json" \
			"$schemas/fairlead.yaml"
)

# Generating again must change nothing. This compares the files with themselves
# and not with a commit, so that it holds in a tree with changes too.
generated_is_current() {
	local before after
	before=$(files | xargs -0r sha256sum)
	make --no-print-directory generate || return 1
	after=$(files | xargs -0r sha256sum)
	diff <(echo "$before") <(echo "$after") && return
	echo "these files were out of date; they have been generated again: commit them"
	return 1
}

# The last commit before subjects were checked.
readonly base=cdb5035f28f5

base_is_here() { git cat-file -e "$base^{commit}" 2>/dev/null; }

# A subject is "area: verb …": it begins with a verb in the imperative. History has no
# merges, and no commits that say that they are not finished.
commits_are_clean() {
	local hash parents subject verb bad=0
	base_is_here || { echo "no history here since $base" && return "$not_checked"; }
	while IFS=$'\t' read -r hash parents subject; do
		verb=${subject#*: }
		verb=${verb%% *}
		if [[ $parents == *' '* ]]; then
			echo "$hash is a merge: $subject"
		elif ! [[ $subject =~ ^[a-z0-9_./,\ {}*-]+:\ [a-z] ]]; then
			echo "$hash is not called \"area: verb ...\": $subject"
		elif [[ $subject =~ (^|[^a-z])wip([^a-z]|$) ]]; then
			echo "$hash is unfinished: $subject"
		elif [[ $verb =~ ^(a|an|the|it|its|what|who|those|these|no|also|more|fewer|all|each|every|plain|where|when|one|two|three|four|five|six|ten)$ ||
			$verb =~ [^s]s$ || $verb =~ (ing|ed)$ ]] &&
			! [[ $verb =~ ^(alias|bias|focus|embed|feed|need|proceed|seed|shed|speed|bring|ping|ring|string)$ ]]; then
			echo "$hash begins with \"$verb\", not with a verb in the imperative: $subject"
		else
			continue
		fi
		bad=1
	done < <(git log --format='%h%x09%p%x09%s' "$base..HEAD")
	return "$bad"
}

prose_is_plain() {
	if base_is_here; then
		go -C tools run ./prose "$base"
	else
		go -C tools run ./prose
	fi
}

# A report that is older than the code that it measures is measured again by the command
# "fairlab bench NAME -o json" (docs/reference/benchmarks.md).
reports_are_current() { go run ./cmd/fairlab bench reports; }

# The database of known vulnerabilities is on a server that not every network reaches.
no_known_vulnerabilities() {
	local output
	output=$(tool govulncheck ./... 2>&1) && return
	echo "$output"
	[[ $output == *"fetching vulnerabilities"* ]] || return 1
	echo "the database is out of reach"
	return "$not_checked"
}

check "generated files" generated_is_current
check "golangci-lint" lint
check "go.mod" modules_are_tidy
check "clang-format" c_is_formatted
check "shellcheck" shell_is_clean
check "commits" commits_are_clean
check "prose" prose_is_plain
check "reports" reports_are_current
check "helm lint" chart_is_clean
check "kubeconform" manifests_conform
check "known vulnerabilities" no_known_vulnerabilities

((${#unchecked[@]} == 0)) || printf 'verify: NOT CHECKED: %s\n' "${unchecked[@]}"
if ((${#failed[@]})); then
	printf 'verify: failed:'
	printf ' [%s]' "${failed[@]}"
	printf '\n'
	exit 1
fi
echo "verify: all checks${unchecked[*]:+ that could be made} passed"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs the rounds of a tier of tests (the table in CONTRIBUTING.md) with gotestsum, and says
# at the end which tests were skipped and which failed, and why. What every test did, and for
# how long, is in bin/test/TIER-*.json.
#
#   scripts/test.sh test|ci|all [ROUND...]  run a tier, or rounds of it
#   scripts/test.sh summary                 summarise the tiers that have run
#
# Results are cached, unless FRESH is set: then each test runs, in random order.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# What is compiled once serves every test, those that build executables too, and other
# clones. Linking takes half as long without tables for debuggers. Only the race detector
# needs C.
GOFLAGS="$(go env GOFLAGS) -trimpath -ldflags=-w"
export GOFLAGS CGO_ENABLED=0

readonly results=$PWD/bin/test
readonly tier=${1:?test, ci, all or summary}
shift
failed=0

gotestsum() { go tool -modfile=tools/go.mod gotestsum "$@"; }

# run NAME FLAG|PACKAGE... runs go test. The processor time of rounds in the background is
# counted again in the round in which they end.
run() {
	local name=$1 TIMEFORMAT="== $1: %0R s, %0U s + %0S s of processor time"
	shift
	printf '== %s\n' "$name"
	time gotestsum --format=pkgname --format-hide-empty-pkg --hide-summary=skipped --jsonfile="$results/$tier-$name.json" \
		--raw-command -- go -C "${DIR:-.}" test -json ${FRESH:+-count=1 -shuffle=on} "$@" || failed=1
}

# build DIR FLAG... builds the executables that end-to-end tests start, once for all. Those that
# are the same keep their time, as cached results depend on it.
build() {
	local name
	export FAIRLEAD_BIN=$results/$1
	(
		flock 9 # a round in the background builds them, too
		go build -buildvcs=false "${@:2}" -o "$FAIRLEAD_BIN.new/" ./cmd/fairlead ./cmd/fairlab
		mkdir -p "$FAIRLEAD_BIN"
		for name in fairlead fairlab; do
			cmp -s "$FAIRLEAD_BIN.new/$name" "$FAIRLEAD_BIN/$name" || mv "$FAIRLEAD_BIN.new/$name" "$FAIRLEAD_BIN/$name"
		done
		rm -r "$FAIRLEAD_BIN.new"
	) 9>"$FAIRLEAD_BIN.lock"
}

# round NAME WORDS ARGUMENTS runs one round of the table, in a shell of its own.
round() {
	local name=$1 words arguments word
	read -ra words <<<"$2"
	read -ra arguments <<<"$3"
	for word in "${words[@]}"; do
		case $word in
		race) export CGO_ENABLED=1 && arguments=(-race "${arguments[@]}") ;;
		agents) build plain ;;
		raced-agents) CGO_ENABLED=1 build race -race ;;
		kubernetes) go run ./test/cluster/up --build >/dev/null ;;
		*=*) export "${word?}" ;;
		esac
	done
	if [[ $name == fuzz ]]; then
		targets "${arguments[@]}"
	else
		run "$name" -timeout=25m "${arguments[@]}"
	fi
	exit "$failed"
}

# targets PACKAGE... fuzzes each target for FAIRLEAD_FUZZ, with one worker a processor, two at once.
# Go may report the deadline of its own as a failure (golang/go#75804, mended in 1.27).
targets() {
	local file target running=0 found
	found=$(grep -roE --include='*_test.go' '^func Fuzz[A-Za-z0-9]+' api internal test | sort)
	while IFS=: read -r file target; do
		target=${target#func } file=${file%/*}
		if ((running == 2)); then
			wait -n || failed=1
		else
			running=$((running + 1))
		fi
		(run "fuzz-${file//\//-}-$target" -run='^$' -fuzz="^$target\$" -fuzztime="$FAIRLEAD_FUZZ" -fuzzminimizetime=10x "./$file" && exit "$failed") &
	done <<<"$found"
	for (( ; running > 0; running--)); do
		wait -n || failed=1
	done
}

# rounds NAME... runs the rounds of the tier, or those that are named, in the order of the table.
# Those in the background run while the others do.
rounds() {
	local name words arguments background=() list
	list=$(go run ./test/tier "$tier")
	[[ $list != *kubernetes$'\t'* ]] || nice go run ./test/cluster/up --build >/dev/null & # the rounds that need it wait
	while IFS=$'\t' read -r name words arguments <&3; do
		(($# == 0)) || [[ " $* " == *" $name "* ]] || continue
		if [[ " $words " == *" background "* ]]; then
			(round "$name" "$words" "$arguments") &
			background+=($!)
		else
			(round "$name" "$words" "$arguments") || failed=1
		fi
	done 3<<<"$list"
	for name in "${background[@]}"; do
		wait "$name" || failed=1
	done
}

# files [ROUND...] lists the results of rounds: other rounds may run at the same time.
files() {
	find "$results" -regextype posix-extended -regex ".*/$tier-($(IFS='|' && echo "${*:-[^/]*}"))[^/]*\.json" | sort
}

# summary FILE... prints what was retried and how much random tests covered, each skip and each
# failure with the first and last lines of its output, and the counts. A package that fails without a failed test (it
# does not build, or exits) counts as one failed test.
summary() {
	[[ -e $1 ]] || { echo "0 passed, 1 failed, 0 skipped" && return; }
	# Tests report with t.Attr what they had to repeat, and random ones how much they ran.
	sed -nE 's#.*"Action":"attr","Package":"[^"/]*/fairlead/([^"]*)","Test":"([^"]*)","Key":"(retried|covered)","Value":"(.*)"\}$#=== \1 \2: \3 \4#p' "$@"
	{ gotestsum --format=none --raw-command -- cat "$@" 2>&1 || true; } | awk -v first=5 -v last=12 '
		function flush(  i) {
			for (i = first + 1; i <= n; i++) {
				if (i == first + 1 && n > first + last) print "    [" n - first - last " lines]"
				if (i > n - last) print lines[i]
			}
			n = 0
		}
		/^DONE/ {
			for (i = 2; i < NF; i++) {
				if ($(i + 1) ~ /^tests?/) tests = $i
				if ($(i + 1) ~ /^skipped/) skipped = $i
				if ($(i + 1) ~ /^failures?/) failed = $i
			}
			tests += packages
			next
		}
		/^=== FAIL: [^ ]+  \(/ { packages++ }
		/^===/ { flush() }
		NF && !/^ *time=/ {
			lines[++n] = substr($0, 1, 240)
			if (n <= first) print lines[n]
		}
		END { flush(); printf "%d passed, %d failed, %d skipped\n", tests - failed - skipped, failed, skipped }'
}

case $tier in
test | ci | all)
	mkdir -p "$results"
	files "$@" | xargs -r rm
	rounds "$@"
	mapfile -t found < <(files "$@")
	summary "${found[@]-}"
	exit "$failed"
	;;
summary) summary "$results"/*.json ;;
*)
	echo "test.sh: no tier is called $tier: use test, ci, all or summary" >&2
	exit 2
	;;
esac

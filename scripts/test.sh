#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs one part of the tests with gotestsum: "fast" is make test, "rest" is what that
# leaves out. Both say at the end which tests were skipped and which failed, and why.
# What every test did, and for how long, is in bin/test/PART-*.json.
#
#   scripts/test.sh fast|rest    run a part
#   scripts/test.sh summary      summarise the parts that have run
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# What is compiled once serves every test, those that build executables too, and other
# clones. Linking takes half as long without tables for debuggers. Only the race detector
# needs C.
GOFLAGS="$(go env GOFLAGS) -trimpath -ldflags=-w"
export GOFLAGS CGO_ENABLED=0

readonly results=$PWD/bin/test module=fairlead.io/fairlead
readonly part=${1:?fast, rest or summary}
failed=0

# Tests that start an API server have this name (test/cluster sees to it). They leave
# no processor to tests that measure time.
readonly api='^TestAPIServer'

gotestsum() { go tool -modfile=tools/go.mod gotestsum "$@"; }

# run NAME FLAG|PACKAGE... runs one round of tests; of the module in DIR, if that is set. The
# processor time of guests is counted again in the round in which they end.
run() {
	local name=$1 TIMEFORMAT="== $1: %0R s, %0U s + %0S s of processor time"
	shift
	printf '== %s\n' "$name"
	time gotestsum --format=pkgname --format-hide-empty-pkg --hide-summary=skipped --jsonfile="$results/$part-$name.json" \
		--raw-command -- go -C "${DIR:-.}" test -json -shuffle=on -timeout=25m "$@" || failed=1
}

# build DIR FLAG... builds the executables that end-to-end tests start, once for all.
build() {
	export FAIRLEAD_BIN=$results/$1
	go build "${@:2}" -o "$FAIRLEAD_BIN/" ./cmd/fairlead ./cmd/fairlab
}

# packages [-v] PATTERN lists the folders of packages that match, or don't (grep -E).
packages() { go list ./... | sed "s#^$module#.#" | grep -E "$@"; }

# Packages whose tests run without the race detector: they share no state between
# goroutines, start processes, or compare what BPF programs do with packets.
readonly plain='^\./(api|cmd|deploy|lab|test)(/|$)|^\./internal/(alloc|config/keepalived|dataplane|frame|lb|maglev|version)(/|$)'
# Packages that take longest, in this order; they begin first.
longest=$(printf '%s\n' ./test/e2e/traffic ./internal/dataplane/xdp/packets ./test/e2e/{operate,routes})
readonly longest
# Packages that make test leaves to make test-all, and tests: those that need a
# browser, Prometheus or schemathesis, those that build many networks, and those that run with the
# executables of a release and with no other test, as benches do and who measures memory.
readonly later='^\./lab/|^\./test/(cluster|guest|release)(/|$)|^\./test/e2e/kubernetes$'
readonly operators='^Test(StatusPage|PageInBrowser|Prometheus|Schemathesis)$' networks='^Test(ForwardGeneric|Networks)$'
# Tests of test/e2e/traffic with every forwarding mode and with changes, run again with the race detector.
readonly changes='^Test(Forward|NextHops|DSRThroughChanges|DSRWithoutAnAgent|NATIntoOverlayThroughChanges)$'
# Cases of routers other than FRR, which are left to make test-all too.
readonly others='^Test(Leave|ReflectorSNAT|TwoReflectors|RouteTables|ForeignSpeaker)$/^(bird|gobgp)|^TestLeaveWithoutBFD$'
# Tests that mostly start commands, which takes ten times as long with the race detector.
readonly commands='^Test(Trace|Commands)$'
readonly alone='^Test(BenchECMP|BenchChurn|BenchFlood|Demo|HostileClients)$'

fast() {
	local now with without
	build plain
	mapfile -t now < <(echo "$longest" && packages -v "$later" | grep -vxF "$longest")
	mapfile -t without < <(printf '%s\n' "${now[@]}" | grep -E "$plain")
	mapfile -t with < <(printf '%s\n' "${now[@]}" | grep -vE "$plain")
	run plain -skip "$api|$operators|$networks|$others|$alone" "${without[@]}"
	# Most of these tests wait more than they compute.
	CGO_ENABLED=1 run race -p=4 -race -skip "$api|$operators" "${with[@]}"
	DIR=tools run tools ./prose
}

# targets runs each fuzz target some thousand times, with one worker a processor: when a
# time is over Go may report its own deadline as a failure (golang/go#75804, mended in 1.27).
# Targets with servers, whole files or plans take a millisecond or more. Minimizing
# inputs is bounded, as coverage of servers isn't repeatable. Two targets run at once, as
# linking and starting workers takes one processor, and targets with servers also wait.
targets() {
	local file target times running=0 found
	found=$(grep -roE --include='*_test.go' '^func Fuzz[A-Za-z0-9]+' api internal test | sort)
	while IFS=: read -r file target; do
		target=${target#func } file=${file%/*} times=10000x
		case $file in
		api/* | internal/alloc | internal/bgp/* | internal/config | internal/config/* | internal/control | internal/maglev) times=1000x ;;
		internal/observe/* | internal/source/* | internal/store) times=1000x ;;
		esac
		case $file:$target in
		*:FuzzClientSession | internal/source/kube/*:FuzzHistory) times=300x ;; # one may take a tenth of a second
		esac
		if ((running == 2)); then
			wait -n || failed=1
		else
			running=$((running + 1))
		fi
		(run "${file//\//-}-$target" -run='^$' -fuzz="^$target\$" -fuzztime="$times" -fuzzminimizetime=10x "./$file" && exit "$failed") &
	done <<<"$found"
	for (( ; running > 0; running--)); do
		wait -n || failed=1
	done
}

rest() {
	local planes
	go run ./test/cluster/up --build >/dev/null
	export FAIRLEAD_FUZZ=${FAIRLEAD_FUZZ:-30s}
	mapfile -t planes < <(packages '^\./internal/dataplane(/|$)' | grep -vxF ./internal/dataplane/xdp/packets)
	CGO_ENABLED=1 run planes -race "${planes[@]}" ./test/dataplane
	run fuzz -run '^Test(Fuzz|Histories)$' ./internal/dataplane/xdp/packets ./internal/alloc
	targets
	build plain
	# Benches keep all processors in the kernel, longer than BFD waits.
	run alone -run "$alone" ./test/e2e/operate
	# Guests take the processor time that others leave from here on.
	(run guests -timeout=45m ./test/guest/... && exit "$failed") &
	local guests=$!
	run routers -run "$others|$networks" ./test/e2e/{routes,traffic}
	run services -run '^Test(ServicesOneByOne|ManyBackends)$' ./internal/agent
	# Not for tests with BFD: with the race detector an agent may be too slow.
	CGO_ENABLED=1 build race -race
	(CGO_ENABLED=1 run e2e -race -skip "$alone|$commands" ./test/e2e/operate && exit "$failed") &
	local e2e=$!
	CGO_ENABLED=1 run changes -race -run "$changes" ./test/e2e/traffic
	wait "$e2e" || failed=1
	run release ./test/release
	run lab -p=1 -skip "$api" ./lab/...
	run clusters -p=1 ./test/cluster/... ./test/e2e/kubernetes
	CGO_ENABLED=1 run api -race -p=2 -run "$api|$operators" ./api/... ./deploy/... ./internal/{apiserver,controller,source}/... ./lab/bench/kubernetes
	wait "$guests" || failed=1
}

# summary FILE... prints what was retried, each skip and each failure with the first
# lines of its output, and the counts. A package that fails without a failed test (it
# does not build, or exits) counts as one failed test.
summary() {
	[[ -e $1 ]] || { echo "0 passed, 1 failed, 0 skipped" && return; }
	# Tests report with t.Attr what they had to repeat.
	sed -nE 's#.*"Action":"attr","Package":"[^"/]*/fairlead/([^"]*)","Test":"([^"]*)","Key":"retried","Value":"(.*)"\}$#=== Retried: \1 \2: \3#p' "$@"
	{ gotestsum --format=none --raw-command -- cat "$@" 2>&1 || true; } | awk '
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
		/^===/ { lines = 0 }
		NF && !/^ *time=/ && lines++ < 8 { print substr($0, 1, 240) }
		END { printf "%d passed, %d failed, %d skipped\n", tests - failed - skipped, failed, skipped }'
}

case $part in
fast | rest)
	mkdir -p "$results"
	rm -f "$results/$part-"*.json
	"$part"
	summary "$results/$part-"*.json
	exit "$failed"
	;;
summary) summary "$results"/*.json ;;
*)
	echo "test.sh: no part is called $part: use fast, rest or summary" >&2
	exit 2
	;;
esac

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
#   scripts/manifests.sh [VALUES [MANIFESTS [CHART]]]
#
# Renders the chart for an installation without Helm: the namespace, the definitions
# of Fairlead's kinds, and the chart's objects with its defaults or a file of values.
# "make manifests", "make verify", scripts/release.sh and the tests of deploy/helm call it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly chart=${3:-deploy/helm/fairlead} manifests=${2:-bin/fairlead.yaml}
values=()
[[ -z ${1:-} ]] || values=(--values "$1")
readonly namespace=fairlead-system

out=$(mktemp)
trap 'rm -f "$out"' EXIT
cat >"$out" <<END
# SPDX-License-Identifier: Apache-2.0
#
# Rendered from Fairlead's chart. Install or update with
#   kubectl apply --server-side -f FILE
apiVersion: v1
kind: Namespace
metadata:
  name: $namespace
  labels:
    # Agents use the host network and have capabilities.
    pod-security.kubernetes.io/enforce: privileged
END
# Without --kube-version this build of Helm assumes a very old Kubernetes.
go tool -modfile=tools/helm/go.mod helm template fairlead "$chart" --namespace "$namespace" \
	--include-crds --kube-version 1.36.0 "${values[@]}" |
	sed -e '/^# Source: /d' -e 's/^\( *app.kubernetes.io\/managed-by: \)Helm$/\1fairlead/' -e '/^ *helm.sh\/chart: /d' |
	awk '!(/^---$/ && last == $0); { last = $0 }' >>"$out"
mkdir -p "$(dirname "$manifests")"
install --mode=644 "$out" "$manifests"

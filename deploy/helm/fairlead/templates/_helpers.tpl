{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{/* The name of what the release makes: by default the release's own, with the chart's in it. */}}
{{- define "fairlead.name" -}}
{{- $own := contains "fairlead" .Release.Name | ternary .Release.Name (printf "%s-fairlead" .Release.Name) }}
{{- .Values.nameOverride | default $own | trunc 50 | trimSuffix "-" }}
{{- end }}

{{/* Labels by which pods are selected; those never change. Takes a list: context, component. */}}
{{- define "fairlead.selector" -}}
{{- $ := index . 0 -}}
app.kubernetes.io/name: fairlead
app.kubernetes.io/instance: {{ $.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* Labels of pods. Takes a list: context, component, its values. */}}
{{- define "fairlead.podLabels" -}}
{{- merge (include "fairlead.selector" . | fromYaml) ((index . 2).podLabels | default dict) | toYaml }}
{{- end }}

{{/* Annotations of pods. Takes a list: values of the component, others as YAML. */}}
{{- define "fairlead.podAnnotations" -}}
{{- with merge ((index . 0).podAnnotations | default dict | deepCopy) (index . 1 | fromYaml) }}{{ toYaml . }}{{ end }}
{{- end }}

{{/* Affinity of a Deployment's pods: to different nodes by default. Takes a list: context, component, its values. */}}
{{- define "fairlead.affinity" -}}
{{- with (index . 2).affinity }}{{ toYaml . }}{{ else -}}
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels: {{- include "fairlead.selector" . | nindent 12 }}
{{- end }}
{{- end }}

{{/* All labels. Takes a list: context, component. */}}
{{- define "fairlead.labels" -}}
{{- $ := index . 0 -}}
{{ include "fairlead.selector" . }}
app.kubernetes.io/version: {{ $.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $.Chart.Name $.Chart.Version }}
{{- end }}

{{/* What the release has: "all", "control" for everything but agents, or "agents". */}}
{{- define "fairlead.part" -}}
{{- $nodes := .Values.controller.nodesKubeconfigSecret }}
{{- $control := .Values.agent.controlKubeconfigFolder }}
{{- if and $nodes $control }}
{{- fail "controller.nodesKubeconfigSecret, agent.controlKubeconfigFolder: a cluster has either the controllers or the agents" }}
{{- end }}
{{- $objects := dict "addressPools" .Values.addressPools "groups" .Values.groups "bgp.peers" .Values.bgp.peers "bgp.passwordSecrets" .Values.bgp.passwordSecrets "apiServer.enabled" .Values.apiServer.enabled "agent.dataplane.hashSeed" (not (kindIs "invalid" .Values.agent.dataplane.hashSeed)) }}
{{- range $name, $set := $objects }}
{{- if and $control $set }}
{{- fail (printf "%s: with agent.controlKubeconfigFolder it belongs to the release in the control cluster" $name) }}
{{- end }}
{{- end }}
{{- if $nodes }}control{{ else if $control }}agents{{ else }}all{{ end }}
{{- end }}

{{/* Who the agents are: in a control cluster they are users of a group, as kubelets are. */}}
{{- define "fairlead.agentSubject" -}}
{{- if eq (include "fairlead.part" .) "control" -}}
kind: Group
apiGroup: rbac.authorization.k8s.io
name: fairlead:agents
{{- else -}}
kind: ServiceAccount
name: {{ include "fairlead.name" . }}-agent
namespace: {{ .Release.Namespace }}
{{- end }}
{{- end }}

{{/* The seconds of a duration, such as 1m30s, rounded up. */}}
{{- define "fairlead.seconds" -}}
{{- $units := dict "ms" 0.001 "s" 1.0 "m" 60.0 -}}
{{- $sum := 0.0 -}}
{{- range regexFindAll "[0-9.]+(ms|s|m)" . -1 -}}
{{- $unit := regexReplaceAll "[0-9.]+" . "" -}}
{{- $sum = addf $sum (mulf (trimSuffix $unit . | float64) (get $units $unit)) -}}
{{- end -}}
{{- ceil $sum -}}
{{- end }}

{{- define "fairlead.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* Environment by which client-go finds the API server where no Service leads to it. */}}
{{- define "fairlead.apiServer" -}}
{{- with .Values.kubernetes.apiServer }}{{ if .host -}}
- name: KUBERNETES_SERVICE_HOST
  value: {{ .host | quote }}
- name: KUBERNETES_SERVICE_PORT
  value: {{ .port | quote }}
{{- end }}{{ end }}
{{- end }}

{{/* Annotations for Prometheus. Takes a list: context, port, whether it uses TLS. */}}
{{- define "fairlead.scrape" -}}
{{- $ := index . 0 -}}
{{- if $.Values.metrics.annotations -}}
prometheus.io/scrape: "true"
prometheus.io/port: {{ index . 1 | quote }}
prometheus.io/path: /metrics
{{- if index . 2 }}
prometheus.io/scheme: https
{{- end }}
{{- end }}
{{- end }}

{{/* Whether the release has a group that the values don't list. */}}
{{- define "fairlead.defaultGroup" -}}
{{- if and .Values.defaultGroup .Values.addressPools (not .Values.groups) }}true{{ end }}
{{- end }}

{{/* Whether others than the node itself reach an agent's page. */}}
{{- define "fairlead.agentExposed" -}}
{{- if has .Values.agent.listen.address (list "0.0.0.0" "::") }}true{{ end }}
{{- end }}

{{/* Rights to ask who a client is, and what it may get. */}}
{{- define "fairlead.reviews" -}}
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
{{- end }}

{{/* Egress of NetworkPolicies of controllers and API servers. */}}
{{- define "fairlead.egress" -}}
{{- $api := .Values.kubernetes.apiServer -}}
# The API server: the port of its Service, and its own, which some policies match.
- ports:
    {{- range list 443 6443 (int $api.port) | uniq }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
{{- if or .Values.controller.nodesKubeconfigSecret (regexMatch "[g-zG-Z]" $api.host) }}
# DNS, for its name.
- ports:
    - {protocol: UDP, port: 53}
    - {protocol: TCP, port: 53}
{{- end }}
{{- end }}

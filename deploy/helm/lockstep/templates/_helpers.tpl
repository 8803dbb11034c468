{{- define "lockstep.name" -}}
{{- if contains "lockstep" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-lockstep" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end -}}
{{- end -}}

{{- define "lockstep.selector" -}}
app.kubernetes.io/name: lockstep
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "lockstep.labels" -}}
{{ include "lockstep.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "lockstep.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "lockstep.secret" -}}
{{ include "lockstep.name" . }}-secrets
{{- end -}}

{{/* The addresses by which the nodes know each other, with their ids. */}}
{{- define "lockstep.peers" -}}
{{- $name := include "lockstep.name" . -}}
{{- $domain := printf "%s-peers.%s.svc.%s" $name .Release.Namespace .Values.clusterDomain -}}
{{- range $i := until (int .Values.replicas) }}{{ if $i }},{{ end }}{{ $name }}-{{ $i }}={{ $name }}-{{ $i }}.{{ $domain }}:7379{{ end -}}
{{- end -}}

{{- define "lockstep.join" -}}
{{- $name := include "lockstep.name" . -}}
{{- $domain := printf "%s-peers.%s.svc.%s" $name .Release.Namespace .Values.clusterDomain -}}
{{- range $i := until (int .Values.replicas) }}{{ if $i }},{{ end }}{{ $name }}-{{ $i }}.{{ $domain }}:7379{{ end -}}
{{- end -}}

{{- define "lockstep.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "lockstep.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* The volume that has the password, and for nodes the secret of the peers. */}}
{{- define "lockstep.passwordSource" -}}
- secret:
    name: {{ .Values.auth.existingSecret | default (include "lockstep.secret" .) }}
    items:
      - {key: password, path: password}
{{- end -}}

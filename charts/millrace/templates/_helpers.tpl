{{- define "millrace.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "millrace.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains (include "millrace.name" .) .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "millrace.name" .) | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- /* What is in a cluster only once is named after its namespace, too: releases of one name may be in several. */}}
{{- define "millrace.clusterName" -}}
{{- printf "%s-%s" .Release.Namespace (include "millrace.fullname" .) | trunc 60 | trimSuffix "-" }}
{{- end }}

{{- define "millrace.selector" -}}
app.kubernetes.io/name: {{ include "millrace.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "millrace.labels" -}}
{{ include "millrace.selector" . }}
app.kubernetes.io/part-of: millrace
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.extraLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "millrace.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "millrace.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- /* Takes a list: the image's values, and the chart's appVersion. */}}
{{- define "millrace.image" -}}
{{- $image := index . 0 }}
{{- if $image.digest }}
{{- printf "%s@%s" $image.repository $image.digest }}
{{- else }}
{{- printf "%s:%s" $image.repository (default (index . 1) $image.tag) }}
{{- end }}
{{- end }}

{{- /* The one place where the operator is told anything. */}}
{{- define "millrace.arguments" -}}
- --http=:{{ .Values.metrics.port }}
- --worker-image={{ include "millrace.image" (list .Values.workerImage .Chart.AppVersion) }}
- --spark-image={{ include "millrace.image" (list .Values.sparkImage .Chart.AppVersion) }}
- --lease={{ include "millrace.fullname" . }}
{{- with .Values.watch.namespace }}
- --namespace={{ . }}
{{- end }}
{{- with .Values.watch.selector }}
- {{ printf "--selector=%s" . | quote }}
{{- end }}
{{- end }}

{{- /* What the operator does where its pipelines are. */}}
{{- define "millrace.rules" }}
- apiGroups: [millrace.dev]
  resources: [consumerpipelines]
  verbs: [list, watch, patch]
- apiGroups: [millrace.dev]
  resources: [consumerpipelines/status]
  verbs: [patch]
# so that children may be owned, and block, where OwnerReferencesPermissionEnforcement is on
- apiGroups: [millrace.dev]
  resources: [consumerpipelines/finalizers]
  verbs: [update]
# children; server-side apply is patch, and create where there is none
- apiGroups: [""]
  resources: [serviceaccounts, services]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [monitoring.coreos.com]
  resources: [servicemonitors]
  verbs: [list, watch, create, patch, delete]
# the user's code is read, too; the epoch is replaced by compare-and-set
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch, create, update, patch, delete]
# workers' pods are made by StatefulSets; the operator tells them of an epoch, and gives up those on lost nodes. Drivers of
# collectors it makes itself. What is more here is what it grants to drivers with executors, which nobody can who has it not
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, patch, delete, deletecollection]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [list, watch, create, patch, delete]
# whether a collector's storage is there, and can be shared
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get]
# credentials, each by the name that its pipeline gives
- apiGroups: [""]
  resources: [secrets]
  verbs: [get]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
# why pods of a StatefulSet don't come into being is told in events only
- apiGroups: [""]
  resources: [events]
  verbs: [list]
{{- end }}

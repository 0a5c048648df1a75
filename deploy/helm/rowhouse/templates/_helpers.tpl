{{- define "rowhouse.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What selects the servers, and nothing else of the release. */}}
{{- define "rowhouse.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: server
{{- end -}}

{{- define "rowhouse.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "rowhouse.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{/* SQLite has no second server that could answer meanwhile. */}}
{{- define "rowhouse.drain" -}}
{{- ternary (int .Values.drainSeconds) 0 (eq .Values.store "postgres") -}}
{{- end -}}

{{- define "rowhouse.claim" -}}
{{ .Values.persistence.existingClaim | default (include "rowhouse.name" .) }}
{{- end -}}

{{- define "rowhouse.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 0
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "rowhouse.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* The secrets of the program, in JSON: the variable that names the file, the file,
     the Secret and its key. "of" is server or migration. */}}
{{- define "rowhouse.secrets" -}}
{{- $values := .root.Values -}}
{{- $all := list -}}
{{- if eq $values.store "postgres" -}}
{{- $all = append $all (dict "variable" "DATABASE_URL_FILE" "file" "database-url" "from" $values.database) -}}
{{- $all = append $all (dict "file" "database-ca.crt" "from" $values.database.rootCertificate) -}}
{{- if or (eq .of "migration") (not $values.migrate.enabled) -}}
{{- $all = append $all (dict "variable" "ROWHOUSE_MIGRATE_URL_FILE" "file" "migrate-url" "from" $values.migrate) -}}
{{- end -}}
{{- end -}}
{{- if eq .of "server" -}}
{{- $all = append $all (dict "variable" "ROWHOUSE_SECONDARY_DATABASE_URL_FILE" "file" "secondary-url" "from" $values.secondaryDatabase) -}}
{{- $all = append $all (dict "variable" "ROWHOUSE_ACCOUNTS_FILE" "file" "accounts" "from" $values.accounts) -}}
{{- $all = append $all (dict "variable" "ROWHOUSE_MASTER_KEY_FILE" "file" "master-key" "from" $values.masterKey) -}}
{{- $all = append $all (dict "variable" "ROWHOUSE_OLD_MASTER_KEY_FILE" "file" "old-master-key" "from" $values.oldMasterKey) -}}
{{- $all = append $all (dict "variable" "ROWHOUSE_ADMIN_TOKEN_FILE" "file" "admin-token" "from" $values.adminToken) -}}
{{- end -}}
{{- $given := list -}}
{{- range $all -}}
{{- if .from.existingSecret -}}{{- $given = append $given . -}}{{- end -}}
{{- end -}}
{{- toJson $given -}}
{{- end -}}

{{- define "rowhouse.secretVariables" -}}
{{- range include "rowhouse.secrets" . | fromJsonArray }}
{{- if .variable }}
- name: {{ .variable }}
  value: /run/secrets/rowhouse/{{ .file }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "rowhouse.secretVolume" -}}
- name: secrets
  projected:
    # The pod's group may read them.
    defaultMode: 0440
    sources:
      {{- range include "rowhouse.secrets" . | fromJsonArray }}
      - secret:
          name: {{ .from.existingSecret }}
          items:
            - key: {{ .from.key }}
              path: {{ .file }}
      {{- end }}
{{- end -}}

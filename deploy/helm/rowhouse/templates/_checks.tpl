{{/* Refuses values that cannot work, with a sentence. */}}
{{- define "rowhouse.checks" -}}
{{- $v := .Values -}}
{{- if not $v.image.repository -}}
{{- fail "image.repository is required: no image is published, so build one with the Dockerfile and push it to a registry of yours." -}}
{{- end -}}
{{- if not (or $v.accounts.existingSecret $v.masterKey.existingSecret) -}}
{{- fail "accounts.existingSecret or masterKey.existingSecret is required: without them anyone could use the development account." -}}
{{- end -}}
{{- if and $v.oldMasterKey.existingSecret (not $v.masterKey.existingSecret) -}}
{{- fail "oldMasterKey.existingSecret needs masterKey.existingSecret: nothing is encrypted with the old key." -}}
{{- end -}}
{{- if not $v.adminToken.existingSecret -}}
{{- fail "adminToken.existingSecret is required: probes and metrics need the admin listener, which does not start without a token." -}}
{{- end -}}
{{- if eq $v.store "sqlite" -}}
{{- if gt (int $v.replicas) 1 -}}
{{- fail "replicas must be 1 with store sqlite: one server alone can use the file." -}}
{{- end -}}
{{- if $v.database.existingSecret -}}
{{- fail "database.existingSecret is for store postgres: with store sqlite entities are in the volume." -}}
{{- end -}}
{{- if or $v.migrate.existingSecret $v.secondaryDatabase.existingSecret -}}
{{- fail "migrate.existingSecret and secondaryDatabase.existingSecret are for store postgres." -}}
{{- end -}}
{{- else -}}
{{- if not $v.database.existingSecret -}}
{{- fail "database.existingSecret is required with store postgres: it holds the URL of the database." -}}
{{- end -}}
{{- if $v.persistence.existingClaim -}}
{{- fail "persistence.existingClaim is for store sqlite: with store postgres servers keep nothing." -}}
{{- end -}}
{{- if and $v.networkPolicy.enabled (not $v.networkPolicy.egress) -}}
{{- fail "networkPolicy.egress is required with store postgres: servers must reach the database." -}}
{{- end -}}
{{- end -}}
{{- if and $v.ingress.enabled (not $v.ingress.host) -}}
{{- fail "ingress.host is required with ingress.enabled." -}}
{{- end -}}
{{- if and $v.serviceMonitor.enabled $v.networkPolicy.enabled (not $v.networkPolicy.operators) -}}
{{- fail "networkPolicy.operators is required with serviceMonitor.enabled: Prometheus must reach the admin listener." -}}
{{- end -}}
{{- $own := dict
  "ROWHOUSE_LISTEN" "use listenAddress"
  "ROWHOUSE_ADMIN_LISTEN" "use listenAddress"
  "ROWHOUSE_TLS_CERT" "use tls.existingSecret"
  "ROWHOUSE_TLS_KEY" "use tls.existingSecret"
  "ROWHOUSE_MAX_CONNECTIONS" "use maxConnections"
  "ROWHOUSE_WORKERS" "use workers"
  "ROWHOUSE_DRAIN_SECONDS" "use drainSeconds"
  "ROWHOUSE_SHUTDOWN_SECONDS" "use shutdownSeconds"
  "ROWHOUSE_ACCOUNTS" "it is secret, use accounts.existingSecret"
  "ROWHOUSE_MASTER_KEY" "it is secret, use masterKey.existingSecret"
  "ROWHOUSE_OLD_MASTER_KEY" "it is secret, use oldMasterKey.existingSecret"
  "ROWHOUSE_MIGRATE_URL" "it is secret, use migrate.existingSecret"
  "ROWHOUSE_SECONDARY_DATABASE_URL" "it is secret, use secondaryDatabase.existingSecret"
  "ROWHOUSE_ADMIN_TOKEN" "it is secret, use adminToken.existingSecret"
  "OTEL_EXPORTER_OTLP_HEADERS" "it is secret, let a collector in the cluster add them"
-}}
{{- range $name, $value := $v.settings -}}
{{- with get $own (trimSuffix "_FILE" $name) -}}
{{- fail (printf "settings.%s cannot be set: %s." $name .) -}}
{{- end -}}
{{- end -}}
{{- end -}}

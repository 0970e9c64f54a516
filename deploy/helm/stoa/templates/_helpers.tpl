{{- define "stoa.fullname" -}}
{{- if contains "stoa" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-stoa" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "stoa.selector" -}}
app.kubernetes.io/name: stoa
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "stoa.labels" -}}
{{ include "stoa.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end }}

{{- define "stoa.image" -}}
{{- if .Values.image.digest }}{{ .Values.image.repository }}@{{ .Values.image.digest }}{{ else }}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{/* The address for gRPC that cards show, "" for that of the process. */}}
{{- define "stoa.publicGRPC" -}}
{{- if .Values.publicGRPC }}{{ .Values.publicGRPC }}
{{- else if and .Values.ingress.enabled .Values.ingress.grpc.enabled }}{{ .Values.ingress.grpc.host }}:443
{{- else if and .Values.gateway.enabled .Values.gateway.grpc.enabled .Values.publicURL }}
{{- $url := urlParse .Values.publicURL }}
{{- $url.host }}{{ if not (regexMatch ":[0-9]+$" $url.host) }}:{{ ternary 443 80 (eq $url.scheme "https") }}{{ end }}
{{- end }}
{{- end }}

{{/* What a process may do: nothing that needs a privilege. */}}
{{- define "stoa.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "stoa.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
privileged: false
capabilities: {drop: [ALL]}
{{- end }}

{{/* The pods of one role: dict "root" $ "role" "web"|"worker"|"all" "component" .Values.web. */}}
{{- define "stoa.pod" -}}
{{- $ := .root -}}
{{- $name := ternary "worker" "web" (eq .role "worker") -}}
metadata:
  labels:
    {{- include "stoa.labels" $ | nindent 4 }}
    app.kubernetes.io/component: {{ $name }}
  annotations:
    # A change of the configuration is a rolling restart.
    checksum/config: {{ $.Values.config | sha256sum }}
    {{- with .component.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "stoa.fullname" $ }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  # --shutdown-timeout, and the 10 seconds for open answers.
  terminationGracePeriodSeconds: {{ add $.Values.shutdownTimeoutSeconds 10 }}
  securityContext:
    {{- include "stoa.podSecurity" $ | nindent 4 }}
  {{- with $.Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .component.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .component.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  topologySpreadConstraints:
    {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
    - topologyKey: {{ . }}
      maxSkew: 1
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "stoa.selector" $ | nindent 10 }}
          app.kubernetes.io/component: {{ $name }}
    {{- end }}
  containers:
    - name: stoa
      image: {{ include "stoa.image" $ }}
      imagePullPolicy: {{ $.Values.image.pullPolicy }}
      args:
        - serve
        - --config=/etc/stoa/stoa.yaml
        - --role={{ .role }}
        - --port=8080
        - --grpc-port=50051
        - --metrics-addr=:9090
        - --log-format=json
        - --drain-delay={{ $.Values.drainDelay }}
        - --shutdown-timeout={{ $.Values.shutdownTimeoutSeconds }}s
        {{- if eq .role "worker" }}
        - --queue-workers={{ .component.queueWorkers }}
        {{- end }}
        {{- if $.Values.migration.enabled }}
        - --no-migrate
        {{- end }}
        {{- with $.Values.publicURL }}
        - --public-url={{ . }}
        {{- end }}
        {{- with include "stoa.publicGRPC" $ }}
        - --public-grpc={{ . }}
        {{- end }}
        {{- with $.Values.trustedProxies }}
        - --trusted-proxies={{ join "," . }}
        {{- end }}
      envFrom:
        - secretRef: {name: {{ required "existingSecret is needed: the name of a secret with STOA_ADMIN_SECRET, STOA_MASTER_KEY and STOA_DATABASE" $.Values.existingSecret | quote }}}
      env:
        - {name: GOMEMLIMIT, valueFrom: {resourceFieldRef: {resource: limits.memory}}}
        {{- range $key, $value := $.Values.env }}
        - {name: {{ $key }}, value: {{ $value | quote }}}
        {{- end }}
      ports:
        - {name: http, containerPort: 8080}
        - {name: grpc, containerPort: 50051}
        - {name: metrics, containerPort: 9090}
      # A migration may take its time before the process listens.
      startupProbe:
        httpGet: {path: /health, port: http}
        periodSeconds: 2
        timeoutSeconds: 5
        failureThreshold: 150
      livenessProbe:
        httpGet: {path: /health, port: http}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 3
      # A draining process waits until /ready was asked three times.
      readinessProbe:
        httpGet: {path: /ready, port: http}
        periodSeconds: 1
        timeoutSeconds: 5
        failureThreshold: 1
      resources:
        {{- toYaml .component.resources | nindent 8 }}
      securityContext:
        {{- include "stoa.containerSecurity" $ | nindent 8 }}
      volumeMounts:
        - {name: config, mountPath: /etc/stoa, readOnly: true}
        - {name: tmp, mountPath: /tmp}
  volumes:
    - name: config
      configMap: {name: {{ include "stoa.fullname" $ }}}
    - name: tmp
      emptyDir: {sizeLimit: 1Gi}
{{- end }}

{{- define "postrider.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "postrider.labels" -}}
app.kubernetes.io/name: postrider
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "postrider.selector" -}}
app.kubernetes.io/name: postrider
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .role }}
{{- end -}}

{{/* The pods of a role. */}}
{{- define "postrider.pod" -}}
metadata:
  labels:
    {{- include "postrider.selector" . | nindent 4 }}
  annotations:
    checksum/config: {{ .root.Values.config | sha256sum }}
spec:
  {{- with .root.Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: {{ .root.Values.worker.terminationGracePeriodSeconds }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    seccompProfile:
      type: RuntimeDefault
  containers:
    - name: postrider
      image: "{{ .root.Values.image.repository }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}"
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      args: ["serve", "--config", "/etc/postrider/postrider.toml", "--role", {{ .role | quote }}, "--listen", "0.0.0.0:8080"]
      ports:
        - name: http
          containerPort: 8080
        - name: metrics
          containerPort: 9090
      env:
        # TLS is the matter of the ingress. Only the monitoring should reach the port of the metrics.
        - name: POSTRIDER_SERVER__ALLOW_PLAIN_HTTP
          value: "true"
        - name: POSTRIDER_SERVER__METRICS_LISTEN
          value: 0.0.0.0:9090
        - name: POSTRIDER_STORE__URL
          value: {{ required "store.url must be set, e.g. postgres://postrider@database:5432/postrider" .root.Values.store.url | quote }}
        {{- with .root.Values.store.passwordSecret }}
        {{- if .name }}
        - name: POSTRIDER_STORE__PASSWORD
          value: env:STORE_PASSWORD
        - name: STORE_PASSWORD
          valueFrom:
            secretKeyRef:
              name: {{ .name }}
              key: {{ .key }}
        {{- end }}
        {{- end }}
        - name: POSTRIDER_ADMIN_KEY
          valueFrom:
            secretKeyRef:
              name: {{ required "adminSecret.name must be set: a Secret with the admin key" .root.Values.adminSecret.name }}
              key: {{ .root.Values.adminSecret.key }}
        - name: POSTRIDER_SERVER__NODE
          valueFrom:
            fieldRef:
              fieldPath: metadata.name
        {{- with .root.Values.env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with .root.Values.envFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      startupProbe:
        httpGet: { path: /healthz, port: http }
        periodSeconds: 2
        failureThreshold: 60
      # The process, not the store: a restart does not repair a database.
      livenessProbe:
        httpGet: { path: /healthz, port: http }
        periodSeconds: 10
        failureThreshold: 3
      readinessProbe:
        httpGet: { path: /readyz, port: http }
        periodSeconds: 3
        failureThreshold: 2
      resources:
        {{- toYaml .settings.resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: ["ALL"]
      volumeMounts:
        - name: config
          mountPath: /etc/postrider
          readOnly: true
  volumes:
    - name: config
      configMap:
        name: {{ include "postrider.name" .root }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "postrider.selector" . | nindent 10 }}
  {{- with .root.Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .root.Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .root.Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

package charttest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	sigsyaml "sigs.k8s.io/yaml"
)

const chartDir = "../helm/stoa"

// ownKinds are the kinds that Kubernetes itself does not have. Their manifests are decoded without a type.
var ownKinds = []string{"HTTPRoute", "GRPCRoute", "ServiceMonitor", "PrometheusRule", "ScaledObject", "ExternalSecret", "ClientSettingsPolicy"}

// valueSets are the values with which the chart is rendered, each with the kinds and names that it must make in addition to
// those of all.
var valueSets = map[string]struct{ values, want string }{
	"default":    {`existingSecret: stoa`, "Deployment/web Deployment/worker PodDisruptionBudget/web PodDisruptionBudget/worker NetworkPolicy"},
	"one role":   {`{existingSecret: stoa, worker: {enabled: false}, networkPolicy: {enabled: false}}`, "Deployment/web PodDisruptionBudget/web"},
	"no budgets": {`{existingSecret: stoa, web: {podDisruptionBudget: {enabled: false}}, worker: {podDisruptionBudget: {enabled: false}}}`, "Deployment/web Deployment/worker NetworkPolicy"},
	"migration": {
		`{existingSecret: stoa, migration: {enabled: true, existingSecret: stoa-owner}}`,
		"Deployment/web Deployment/worker PodDisruptionBudget/web PodDisruptionBudget/worker NetworkPolicy Job/migrate-1",
	},
	"scaled by Kubernetes": {
		`{existingSecret: stoa, web: {autoscaling: {enabled: true, inflight: 50}}, worker: {autoscaling: {kind: hpa}}}`,
		"Deployment/web Deployment/worker PodDisruptionBudget/web PodDisruptionBudget/worker NetworkPolicy HorizontalPodAutoscaler/web HorizontalPodAutoscaler/worker",
	},
	"scaled by KEDA": {
		`{existingSecret: stoa, worker: {autoscaling: {kind: keda}}}`,
		"Deployment/web Deployment/worker PodDisruptionBudget/web PodDisruptionBudget/worker NetworkPolicy ScaledObject/worker",
	},
	"gateway": {
		`{existingSecret: stoa, gateway: {enabled: true, parentRefs: [{name: public}]}}`,
		"Deployment/web Deployment/worker PodDisruptionBudget/web PodDisruptionBudget/worker NetworkPolicy HTTPRoute GRPCRoute",
	},
	"everything": {
		`
existingSecret: stoa
image: {digest: "sha256:0123456789012345678901234567890123456789012345678901234567890123"}
imagePullSecrets: [{name: registry}]
externalSecret: {enabled: true, secretStoreRef: {name: vault}, key: stoa/production}
env: {OTEL_EXPORTER_OTLP_ENDPOINT: "http://collector:4318", STOA_MAX_INFLIGHT: 64}
publicURL: https://agents.example.com
trustedProxies: [10.0.0.0/8]
ingress: {enabled: true, className: nginx, host: agents.example.com, tlsSecret: tls, grpc: {enabled: true, host: grpc.example.com, tlsSecret: tls}}
gateway: {enabled: true, parentRefs: [{name: public}], hostnames: [agents.example.com], nginx: {enabled: true}}
backup: {enabled: true, existingSecret: stoa-backup, claim: backups}
networkPolicy:
  from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ingress}}}]
  metricsFrom: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]
  egress: [{to: [{podSelector: {matchLabels: {app: postgresql}}}], ports: [{port: 5432}]}]
serviceMonitor: {enabled: true, labels: {release: prometheus}}
prometheusRule: {enabled: true, labels: {release: prometheus}}
serviceAccount: {annotations: {a: b}}
service: {type: LoadBalancer, annotations: {a: b}}
web: {nodeSelector: {pool: web}, tolerations: [{key: web, operator: Exists}], podAnnotations: {a: b}}
worker: {nodeSelector: {pool: worker}, tolerations: [{key: worker, operator: Exists}], podAnnotations: {a: b}}
`,
		"Deployment/web Deployment/worker PodDisruptionBudget/web PodDisruptionBudget/worker NetworkPolicy ExternalSecret Ingress Ingress/grpc Ingress/import HTTPRoute HTTPRoute/import GRPCRoute " +
			"ClientSettingsPolicy ClientSettingsPolicy/grpc ClientSettingsPolicy/import CronJob/backup ServiceMonitor PrometheusRule",
	},
}

// TestMain silences the loader, which logs that files/alerts.yaml is a link.
func TestMain(m *testing.M) {
	log.SetOutput(io.Discard)
	os.Exit(m.Run())
}

// parseValues returns values of YAML.
func parseValues(t *testing.T, text string) map[string]any {
	t.Helper()
	values := map[string]any{}
	if err := sigsyaml.UnmarshalStrict([]byte(text), &values); err != nil {
		t.Fatal(err)
	}
	return values
}

// loadChart returns the chart.
func loadChart(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// renderChart returns the manifests that the chart makes of values.
func renderChart(t *testing.T, values map[string]any) (manifests []string, err error) {
	t.Helper()
	c := loadChart(t)
	options := chartutil.ReleaseOptions{Name: "release", Namespace: "agents", Revision: 1, IsInstall: true}
	input, err := chartutil.ToRenderValues(c, values, options, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Engine{Strict: true}.Render(c, input)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		reader := yaml.NewYAMLReader(bufio.NewReader(strings.NewReader(files[name])))
		for {
			text, err := reader.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if withoutComments(string(text)) != "" {
				manifests = append(manifests, string(text))
			}
		}
	}
	return manifests, nil
}

var comments = regexp.MustCompile(`(?m)^\s*(#.*|---)?$`)

func withoutComments(text string) string {
	return strings.TrimSpace(comments.ReplaceAllString(text, ""))
}

// decodeManifest returns an object of Kubernetes' own type, with unknown and repeated fields refused, and of the other
// kinds one without a type.
func decodeManifest(t *testing.T, text string) runtime.Object {
	t.Helper()
	var head metav1.TypeMeta
	if err := sigsyaml.Unmarshal([]byte(text), &head); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	if slices.Contains(ownKinds, head.Kind) {
		object := &unstructured.Unstructured{}
		if err := sigsyaml.UnmarshalStrict([]byte(text), &object.Object); err != nil {
			t.Fatalf("%s: %v", head.Kind, err)
		}
		return object
	}
	codec := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	object, _, err := codec.Decode([]byte(text), nil, nil)
	if err != nil {
		t.Fatalf("%s: %v in:\n%s", head.Kind, err, text)
	}
	return object
}

// TestLint runs Helm's own checks.
func TestLint(t *testing.T) {
	t.Parallel()
	for name, set := range valueSets {
		result := lint.AllWithKubeVersionAndSchemaValidation(chartDir, parseValues(t, set.values), "agents", nil, false)
		for _, m := range result.Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %v", name, m)
			}
		}
	}
}

// TestManifests renders the chart with each set of values, decodes the manifests strictly, and checks the policies.
func TestManifests(t *testing.T) {
	t.Parallel()
	for name, set := range valueSets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			manifests, err := renderChart(t, parseValues(t, set.values))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, text := range manifests {
				object := decodeManifest(t, text)
				meta := object.(metav1.Object)
				kind := object.GetObjectKind().GroupVersionKind().Kind
				name := strings.TrimPrefix(strings.TrimPrefix(meta.GetName(), "release-stoa"), "-")
				if kind == "ExternalSecret" {
					name = ""
				}
				got = append(got, strings.TrimSuffix(kind+"/"+name, "/"))
				if meta.GetLabels()["app.kubernetes.io/instance"] != "release" {
					t.Errorf("%s %s has not the label of the release", kind, meta.GetName())
				}
				checkObject(t, object)
				if kind == "Secret" {
					t.Error("the chart makes a secret")
				}
			}
			want := append(strings.Fields(set.want), "ConfigMap", "ServiceAccount", "Service", "Service/metrics")
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("the manifests are\n%q, want\n%q", got, want)
			}
		})
	}
}

// checkObject checks the policies of one object.
func checkObject(t *testing.T, object runtime.Object) {
	t.Helper()
	switch o := object.(type) {
	case *appsv1.Deployment:
		checkPod(t, o.Name, o.Spec.Template.Spec)
		checkServer(t, o)
	case *batchv1.Job:
		checkPod(t, o.Name, o.Spec.Template.Spec)
		if o.Spec.Template.Labels["app.kubernetes.io/name"] == "stoa" {
			t.Errorf("%s: the services select the pods of the job", o.Name)
		}
	case *batchv1.CronJob:
		checkBackup(t, o)
	case *policyv1.PodDisruptionBudget:
		if o.Spec.MaxUnavailable == nil || o.Spec.MaxUnavailable.IntValue() < 1 {
			t.Errorf("%s permits no eviction", o.Name)
		}
	case *autoscalingv2.HorizontalPodAutoscaler:
		if o.Spec.ScaleTargetRef.Name != o.Name {
			t.Errorf("%s scales %s", o.Name, o.Spec.ScaleTargetRef.Name)
		}
	case *networkingv1.NetworkPolicy:
		checkNetwork(t, o)
	}
}

// checkPod checks that a pod has no privilege, bounds and no token.
func checkPod(t *testing.T, name string, pod corev1.PodSpec) {
	t.Helper()
	if pod.HostNetwork || pod.HostPID || pod.HostIPC || pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		t.Errorf("%s uses the host's namespaces or has a token", name)
	}
	s := pod.SecurityContext
	if s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.RunAsUser == nil || *s.RunAsUser == 0 || s.SeccompProfile == nil || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("%s may run as root or has no filter of system calls: %+v", name, s)
	}
	for _, v := range pod.Volumes {
		if v.HostPath != nil || v.EmptyDir != nil && v.EmptyDir.SizeLimit == nil {
			t.Errorf("%s: the volume %s is a path of the host or has no bound", name, v.Name)
		}
	}
	if len(pod.Containers) != 1 {
		t.Errorf("%s has %d containers", name, len(pod.Containers))
	}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		s := c.SecurityContext
		if s == nil || s.Privileged == nil || *s.Privileged || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
			t.Errorf("%s: a privilege, or a root that can be written: %+v", name, s)
			continue
		}
		if s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(s.Capabilities.Add) > 0 {
			t.Errorf("%s has capabilities: %+v", name, s.Capabilities)
		}
		if c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() {
			t.Errorf("%s has no limit of memory, or no requests: %+v", name, c.Resources)
		}
		if strings.HasSuffix(c.Image, ":latest") || !strings.ContainsAny(c.Image, ":@") {
			t.Errorf("%s: the image %s has no version", name, c.Image)
		}
	}
}

// checkServer checks the probes of a server and that it may take the time to drain.
func checkServer(t *testing.T, d *appsv1.Deployment) {
	t.Helper()
	pod := d.Spec.Template.Spec
	c := pod.Containers[0]
	if len(pod.InitContainers) > 0 {
		t.Errorf("%s waits for %d containers", d.Name, len(pod.InitContainers))
	}
	for _, tt := range []struct {
		path  string
		probe *corev1.Probe
	}{{"/health", c.StartupProbe}, {"/health", c.LivenessProbe}, {"/ready", c.ReadinessProbe}} {
		if tt.probe == nil || tt.probe.HTTPGet == nil || tt.probe.HTTPGet.Path != tt.path || tt.probe.HTTPGet.Port.StrVal != "http" {
			t.Errorf("%s: the probe of %s is %+v", d.Name, tt.path, tt.probe)
		}
	}
	if r := c.ReadinessProbe; r.PeriodSeconds != 1 || r.FailureThreshold != 1 {
		t.Errorf("%s: a draining process is removed after %d failures, one each %d s, want 1 and 1", d.Name, r.FailureThreshold, r.PeriodSeconds)
	}
	var timeout int64
	for _, a := range c.Args {
		_, _ = fmt.Sscanf(a, "--shutdown-timeout=%ds", &timeout)
	}
	if timeout == 0 || pod.TerminationGracePeriodSeconds == nil || *pod.TerminationGracePeriodSeconds < timeout+10 {
		t.Errorf("%s: it is killed after %v, and drains for %d s and 10 s", d.Name, pod.TerminationGracePeriodSeconds, timeout)
	}
	if len(pod.TopologySpreadConstraints) < 2 {
		t.Errorf("%s is not spread over zones and nodes", d.Name)
	}
	if u := d.Spec.Strategy.RollingUpdate; u == nil || u.MaxUnavailable == nil || u.MaxUnavailable.IntValue() != 0 {
		t.Errorf("%s loses a process before the next one is ready", d.Name)
	}
}

// checkBackup checks that the backups do not overlap, and that one is recorded with the login that serves after the dump was
// made with another login.
func checkBackup(t *testing.T, o *batchv1.CronJob) {
	t.Helper()
	job := o.Spec.JobTemplate.Spec
	pod := job.Template.Spec
	checkPod(t, o.Name, pod)
	if o.Spec.ConcurrencyPolicy != batchv1.ForbidConcurrent || job.ActiveDeadlineSeconds == nil || job.Template.Labels["app.kubernetes.io/name"] == "stoa" {
		t.Errorf("%s: backups overlap, have no bound, or are selected by the services", o.Name)
	}
	if len(pod.InitContainers) != 1 {
		t.Fatalf("%s has %d containers that make a dump", o.Name, len(pod.InitContainers))
	}
	dump, record := pod.InitContainers[0], pod.Containers[0]
	if !slices.Equal(record.Args, []string{"backup", "record"}) || findSecretKey(dump) != "stoa-backup/DATABASE" || findSecretKey(record) != "stoa/STOA_DATABASE" {
		t.Errorf("%s: %v as %s after a dump as %s", o.Name, record.Args, findSecretKey(record), findSecretKey(dump))
	}
}

// findSecretKey returns the secret and the key of a container's only secret, "" if it has none or several.
func findSecretKey(c corev1.Container) (found string) {
	for _, e := range c.Env {
		if e.ValueFrom == nil || e.ValueFrom.SecretKeyRef == nil {
			continue
		}
		if found != "" {
			return ""
		}
		found = e.ValueFrom.SecretKeyRef.Name + "/" + e.ValueFrom.SecretKeyRef.Key
	}
	return found
}

// TestBackupScript runs the script of the dump, with programs that stand for those of PostgreSQL.
func TestBackupScript(t *testing.T) {
	t.Parallel()
	manifests, err := renderChart(t, parseValues(t, `{existingSecret: stoa, backup: {enabled: true, existingSecret: stoa-backup, claim: backups, keepDays: 3}}`))
	if err != nil {
		t.Fatal(err)
	}
	var command []string
	for _, text := range manifests {
		if o, ok := decodeManifest(t, text).(*batchv1.CronJob); ok {
			dump := o.Spec.JobTemplate.Spec.Template.Spec.InitContainers[0]
			command = slices.Concat(dump.Command, dump.Args)
		}
	}
	const pgDump = `#!/bin/sh
[ "$*" = "--format=custom --file $3 --dbname postgres://db" ] || exit 9
echo whole >"$3"
exit $DUMP_ENDS
`
	for name, tt := range map[string]struct {
		dumpEnds, restoreEnds string
		code, dumps           int
	}{
		"complete":         {"0", "0", 0, 1},
		"the dump fails":   {"3", "0", 3, 0},
		"the dump is half": {"0", "4", 4, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			folder := filepath.Join(dir, "backups")
			old := filepath.Join(folder, "stoa-old.dump")
			err := errors.Join(os.Mkdir(folder, 0o700), os.WriteFile(old, nil, 0o600), os.Chtimes(old, time.Time{}, time.Now().AddDate(0, 0, -5)),
				os.WriteFile(filepath.Join(dir, "pg_dump"), []byte(pgDump), 0o700), os.WriteFile(filepath.Join(dir, "pg_restore"), []byte("#!/bin/sh\nexit $RESTORE_ENDS\n"), 0o700))
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), command[0], strings.Split(strings.ReplaceAll(strings.Join(command[1:], "\x00"), "/backups", folder), "\x00")...)
			cmd.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "DATABASE=postgres://db", "DUMP_ENDS=" + tt.dumpEnds, "RESTORE_ENDS=" + tt.restoreEnds}
			out, _ := cmd.CombinedOutput()
			dumps, err := filepath.Glob(filepath.Join(folder, "stoa-2*"))
			if code := cmd.ProcessState.ExitCode(); code != tt.code || err != nil || len(dumps) != tt.dumps {
				t.Errorf("code %d with %v, want %d and %d dumps (%v)\n%s", code, dumps, tt.code, tt.dumps, err, out)
			}
			if _, err := os.Stat(old); (err == nil) != (tt.code != 0) {
				t.Errorf("the old dump: %v", err)
			}
		})
	}
}

// TestPublicGRPC checks the address for gRPC that cards show.
func TestPublicGRPC(t *testing.T) {
	t.Parallel()
	for values, want := range map[string]string{
		`{}`: "",
		`{publicURL: "https://agents.example.com"}`:                                                                                         "",
		`{publicGRPC: "grpc.example.com:443"}`:                                                                                              "grpc.example.com:443",
		`{ingress: {enabled: true, host: a.example.com, grpc: {enabled: true, host: g.example.com}}}`:                                       "g.example.com:443",
		`{publicGRPC: "other.example.com:8443", ingress: {enabled: true, host: a.example.com, grpc: {enabled: true, host: g.example.com}}}`: "other.example.com:8443",
		`{ingress: {grpc: {enabled: true, host: g.example.com}}}`:                                                                           "",
		`{publicURL: "https://a.example.com/stoa", gateway: {enabled: true, parentRefs: [{name: p}]}}`:                                      "a.example.com:443",
		`{publicURL: "http://a.example.com:8000", gateway: {enabled: true, parentRefs: [{name: p}]}}`:                                       "a.example.com:8000",
		`{publicURL: "http://a.example.com", gateway: {enabled: true, parentRefs: [{name: p}]}}`:                                            "a.example.com:80",
		`{publicURL: "https://a.example.com", gateway: {enabled: true, parentRefs: [{name: p}], grpc: {enabled: false}}}`:                   "",
	} {
		parsed := parseValues(t, values)
		parsed["existingSecret"] = "stoa"
		manifests, err := renderChart(t, parsed)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range manifests {
			d, ok := decodeManifest(t, text).(*appsv1.Deployment)
			if !ok {
				continue
			}
			got := ""
			for _, arg := range d.Spec.Template.Spec.Containers[0].Args {
				if value, ok := strings.CutPrefix(arg, "--public-grpc="); ok {
					got = value
				}
			}
			if got != want {
				t.Errorf("%s: %s shows %q, want %q", values, d.Name, got, want)
			}
		}
	}
}

// TestBodyBounds checks that what routes to Stoa passes on bodies above the 28 MiB that Stoa permits, so that Stoa's own error
// answers larger ones, and files to import without a bound of its own.
func TestBodyBounds(t *testing.T) {
	t.Parallel()
	manifests, err := renderChart(t, parseValues(t, valueSets["everything"].values))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, text := range manifests {
		switch o := decodeManifest(t, text).(type) {
		case *networkingv1.Ingress:
			bound := o.Annotations["nginx.ingress.kubernetes.io/proxy-body-size"]
			if buffers := o.Annotations["nginx.ingress.kubernetes.io/proxy-request-buffering"]; buffers != "" {
				bound += " buffering " + buffers
			}
			for _, p := range o.Spec.Rules[0].HTTP.Paths {
				got["Ingress "+string(*p.PathType)+" "+p.Path+" of "+o.Spec.Rules[0].Host+" to "+p.Backend.Service.Port.Name] = bound
			}
		case *unstructured.Unstructured:
			if o.GetKind() == "ClientSettingsPolicy" {
				bound, _, _ := unstructured.NestedString(o.Object, "spec", "body", "maxSize")
				kind, _, _ := unstructured.NestedString(o.Object, "spec", "targetRef", "kind")
				name, _, _ := unstructured.NestedString(o.Object, "spec", "targetRef", "name")
				got[kind+" "+name] = bound
			}
		}
	}
	want := map[string]string{
		"Ingress Prefix / of agents.example.com to http":                 "64m",
		"Ingress Prefix / of grpc.example.com to grpc":                   "64m",
		"Ingress Exact /admin/apps:import of agents.example.com to http": "0 buffering off",
		"HTTPRoute release-stoa":                                         "64m",
		"HTTPRoute release-stoa-import":                                  "0",
		"GRPCRoute release-stoa":                                         "64m",
	}
	if !maps.Equal(got, want) {
		t.Errorf("the bounds are\n%q, want\n%q", got, want)
	}
}

// checkNetwork checks that a policy bounds both directions and permits no metadata address.
func checkNetwork(t *testing.T, p *networkingv1.NetworkPolicy) {
	t.Helper()
	if len(p.Spec.PolicyTypes) != 2 {
		t.Errorf("%s bounds %v", p.Name, p.Spec.PolicyTypes)
	}
	for _, rule := range p.Spec.Egress {
		if len(rule.Ports) == 0 {
			t.Errorf("%s permits every port: %+v", p.Name, rule)
		}
		for _, to := range rule.To {
			if to.IPBlock != nil && to.IPBlock.CIDR == "0.0.0.0/0" && !slices.Contains(to.IPBlock.Except, "169.254.0.0/16") {
				t.Errorf("%s permits the metadata addresses", p.Name)
			}
		}
	}
}

// TestRefusedValues checks what the chart refuses, and with which words.
func TestRefusedValues(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ values, want string }{
		{``, "existingSecret is needed"},
		{`{existingSecret: stoa, replicas: 3}`, "replicas"},
		{`{existingSecret: stoa, web: {replica: 3}}`, "replica"},
		{`{existingSecret: stoa, env: {STOA_MASTER_KEY: abc}}`, "STOA_MASTER_KEY"},
		{`{existingSecret: stoa, web: {resources: {limits: {memory: null}}}}`, "memory"},
		{`{existingSecret: stoa, migration: {enabled: true}}`, "migration.existingSecret is needed"},
		{`{existingSecret: stoa, publicGRPC: grpc.example.com}`, "publicGRPC"},
		{`{existingSecret: stoa, backup: {enabled: true, claim: backups}}`, "backup.existingSecret is needed"},
		{`{existingSecret: stoa, backup: {enabled: true, existingSecret: stoa-backup}}`, "backup.claim is needed"},
		{`{existingSecret: stoa, ingress: {enabled: true}}`, "ingress.host is needed"},
		{`{existingSecret: stoa, gateway: {enabled: true}}`, "gateway.parentRefs is needed"},
		{`{existingSecret: stoa, worker: {autoscaling: {kind: both}}}`, "kind"},
	} {
		if _, err := renderChart(t, parseValues(t, tt.values)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: the error is %v, want one with %q", tt.values, err, tt.want)
		}
	}
}

// TestRules checks that the chart has the alerts of deploy/prometheus, whose templates Helm must not evaluate.
func TestRules(t *testing.T) {
	t.Parallel()
	manifests, err := renderChart(t, parseValues(t, valueSets["everything"].values))
	if err != nil {
		t.Fatal(err)
	}
	alerts, err := os.ReadFile("../prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var want, got map[string]any
	if err := sigsyaml.Unmarshal(alerts, &want); err != nil {
		t.Fatal(err)
	}
	for _, text := range manifests {
		if object, ok := decodeManifest(t, text).(*unstructured.Unstructured); ok && object.GetKind() == "PrometheusRule" {
			got = object.Object["spec"].(map[string]any)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Error("the rules of the chart are not those of deploy/prometheus/alerts.yaml")
	}
}

// listValues returns the paths of all values; a list, a text and an empty mapping is one value.
func listValues(prefix string, values map[string]any) (all []string) {
	for name, value := range values {
		if m, ok := value.(map[string]any); ok && len(m) > 0 && !slices.Contains([]string{"resources", "annotations"}, name) {
			all = append(all, listValues(prefix+name+".", m)...)
		} else {
			all = append(all, prefix+name)
		}
	}
	return all
}

// TestValuesDocumented compares the values with the table of docs/operations/kubernetes.md and with values.schema.json.
func TestValuesDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/operations/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	c := loadChart(t)
	values := listValues("", c.Values)
	var documented []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*`) \\|").FindAllStringSubmatch(string(page), -1) {
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			documented = append(documented, name[1])
		}
	}
	slices.Sort(values)
	slices.Sort(documented)
	for _, name := range values {
		if !slices.Contains(documented, name) {
			t.Errorf("docs/operations/kubernetes.md has no row for %s", name)
		}
	}
	for _, name := range documented {
		if !slices.Contains(values, name) {
			t.Errorf("docs/operations/kubernetes.md has a row for %s, which is no value", name)
		}
	}
	if _, err := os.Stat(filepath.Join(chartDir, "values.schema.json")); err != nil {
		t.Error(err)
	}
}

package charttest

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	sigsyaml "sigs.k8s.io/yaml"
)

const composeDir = "../compose"

// loadProject reads a Compose file as docker compose does, with the profiles.
func loadProject(t *testing.T, file string, env []string, profiles ...string) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{filepath.Join(composeDir, file)}, cli.WithProfiles(profiles), cli.WithEnv(env), cli.WithResolvedPaths(true))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return project
}

// TestCompose reads each Compose file with each set of profiles and checks which services it starts and how.
func TestCompose(t *testing.T) {
	t.Parallel()
	base := []string{"caddy", "migrate", "postgres", "redis", "roles", "stoa-1", "stoa-2"}
	for name, tt := range map[string]struct {
		file     string
		profiles []string
		want     []string
	}{
		"single machine": {"single.yaml", nil, []string{"caddy", "stoa"}},
		"plain":          {"compose.yaml", nil, base},
		"workers":        {"compose.yaml", []string{"worker"}, append(slices.Clone(base), "worker")},
		"observed":       {"compose.yaml", []string{"observe"}, append(slices.Clone(base), "alertmanager", "collector", "grafana", "prometheus")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			project := loadProject(t, tt.file, []string{"STOA_ROLE=web", "STOA_HOSTNAME=agents.example.com"}, tt.profiles...)
			got := project.ServiceNames()
			slices.Sort(got)
			slices.Sort(tt.want)
			if !slices.Equal(got, tt.want) {
				t.Errorf("the services are %v, want %v", got, tt.want)
			}
			for _, s := range project.Services {
				checkService(t, project, s)
			}
			checkFiles(t, project)
		})
	}
}

// endingServices do their work before the others start, and end.
var endingServices = []string{"migrate", "roles"}

// checkService checks that a service has no privilege, is bounded, and has no secret in its environment.
func checkService(t *testing.T, project *types.Project, s types.ServiceConfig) {
	t.Helper()
	if s.Privileged || s.NetworkMode == "host" || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
		t.Errorf("%s may get a privilege", s.Name)
	}
	restart := "unless-stopped"
	if slices.Contains(endingServices, s.Name) {
		restart = "no"
	}
	if s.MemLimit == 0 || s.Restart != restart || s.Logging == nil || s.Logging.Options["max-size"] == "" {
		t.Errorf("%s has no bound of memory or of its log, or the wrong rule for restarts", s.Name)
	}
	if _, tag, ok := strings.Cut(s.Image, ":"); !ok || tag == "latest" {
		t.Errorf("%s: the image %s has no version", s.Name, s.Image)
	}
	for _, port := range s.Ports {
		if s.Name != "caddy" && port.HostIP != "127.0.0.1" {
			t.Errorf("%s is reachable from other machines at %s", s.Name, port.Published)
		}
	}
	secret := regexp.MustCompile(`(?i)(secret|password|token|key|database)$`)
	for name, value := range s.Environment {
		if secret.MatchString(name) && value != nil && *value != "" {
			t.Errorf("%s: the variable %s has a value; secrets are files", s.Name, name)
		}
		if file, ok := strings.CutPrefix(deref(value), "/run/secrets/"); ok && !slices.ContainsFunc(s.Secrets, func(r types.ServiceSecretConfig) bool { return r.Source == file }) {
			t.Errorf("%s: %s names the secret %s, which it has not", s.Name, name, file)
		}
	}
	if strings.HasPrefix(s.Image, "stoa:") {
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || len(s.CapAdd) > 0 || s.User != "65532:65532" {
			t.Errorf("%s has capabilities, is root, or can write to its root", s.Name)
		}
		if s.StopGracePeriod == nil || s.StopGracePeriod.String() != "40s" {
			t.Errorf("%s is killed after %v, want --shutdown-timeout and 10 s", s.Name, s.StopGracePeriod)
		}
		if subnet := project.Networks["stoa"].Ipam.Config[0].Subnet; !slices.Contains(endingServices, s.Name) && deref(s.Environment["STOA_TRUSTED_PROXIES"]) != subnet {
			t.Errorf("%s trusts %s, and Caddy's addresses are %s", s.Name, deref(s.Environment["STOA_TRUSTED_PROXIES"]), subnet)
		}
	}
}

func deref(value *string) string {
	if value == nil {
		return ""
	}
	return *value
}

// checkFiles checks that the files that a project mounts exist, except secrets, which secrets.sh creates.
func checkFiles(t *testing.T, project *types.Project) {
	t.Helper()
	for name, c := range project.Configs {
		if _, err := os.Stat(c.File); err != nil {
			t.Errorf("the file of %s: %v", name, err)
		}
	}
	for _, s := range project.Services {
		for _, v := range s.Volumes {
			if v.Type == types.VolumeTypeBind {
				if _, err := os.Stat(v.Source); err != nil {
					t.Errorf("%s: %v", s.Name, err)
				}
			}
		}
	}
}

// TestComposeSecrets checks that secrets.sh creates every secret of the project once, for its owner alone.
func TestComposeSecrets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script, err := os.ReadFile(filepath.Join(composeDir, "secrets.sh"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "secrets.sh")
	if err := os.WriteFile(file, script, 0o700); err != nil {
		t.Fatal(err)
	}
	read := func() map[string]string {
		t.Helper()
		if written, err := exec.CommandContext(t.Context(), file).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, written)
		}
		all := map[string]string{}
		for name := range loadProject(t, "compose.yaml", nil, "observe", "worker").Secrets {
			text, err := os.ReadFile(filepath.Join(dir, "secrets", name))
			if err != nil || len(text) < 32 {
				t.Errorf("the secret %s has %d bytes (%v)", name, len(text), err)
			}
			all[name] = string(text)
		}
		return all
	}
	first, second := read(), read()
	for name := range first {
		if first[name] != second[name] {
			t.Errorf("the second run changed the secret %s", name)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "secrets")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder of the secrets has the mode %v (%v)", info.Mode(), err)
	}
	for secret, login := range map[string]string{"database": "stoa_login", "migrate-database": "stoa_owner", "admin-database": "postgres"} {
		address, err := url.Parse(first[secret])
		if err != nil || address.User.Username() != login || address.Host != "postgres:5432" {
			t.Fatalf("the address in %s is not one for %s (%v)", secret, login, err)
		}
		password, _ := address.User.Password()
		if login == "postgres" && password != first["postgres"] || login != "postgres" && !strings.Contains(first["logins"], login+"="+password+"\n") {
			t.Errorf("the password in %s is not that of %s", secret, login)
		}
	}
	if !strings.Contains(first["stoa"], "STOA_METRICS_TOKEN="+first["metrics"]+"\n") {
		t.Error("the passwords in the secrets are not the same")
	}
}

// TestComposeFiles checks the files that other programs read: the rules of Prometheus by name, and Caddy's file with Caddy.
func TestComposeFiles(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"prometheus.yaml", "collector.yaml", "grafana/datasource.yaml", "grafana/dashboards.yaml", "stoa.yaml"} {
		text, err := os.ReadFile(filepath.Join(composeDir, file))
		if err != nil {
			t.Fatal(err)
		}
		var content map[string]any
		if err := sigsyaml.UnmarshalStrict(text, &content); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	t.Run("prometheus", func(t *testing.T) {
		requireProgram(t, "promtool", "prometheus")
		run(t, nil, "promtool", "check", "config", "--syntax-only", filepath.Join(composeDir, "prometheus.yaml"))
	})
	t.Run("caddy", func(t *testing.T) {
		requireProgram(t, "caddy", "caddy")
		for _, file := range []string{"Caddyfile", "Caddyfile.single"} {
			run(t, []string{"STOA_HOSTNAME=localhost", "HOME=" + t.TempDir()}, "caddy", "validate", "--adapter", "caddyfile", "--config", filepath.Join(composeDir, file))
		}
	})
}

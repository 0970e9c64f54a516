package main

import (
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

// flagCases has for each flag a value and the setting that it must change, "" for a flag that is refused as not
// available yet.
var flagCases = map[string]struct {
	value string
	want  func(s settings) any
	is    any
}{
	"Host":                  {"192.0.2.1", func(s settings) any { return s.host }, "192.0.2.1"},
	"Port":                  {"1234", func(s settings) any { return s.port }, 1234},
	"GRPCPort":              {"1235", func(s settings) any { return s.grpcPort }, 1235},
	"PublicGRPC":            {"grpc.example:443", func(s settings) any { return s.publicGRPC }, "grpc.example:443"},
	"Studio":                {"true", nil, nil},
	"Role":                  {"web", func(s settings) any { return s.role }, "web"},
	"Database":              {"sqlite://x.db", func(s settings) any { return s.databaseURL }, "sqlite://x.db"},
	"MigrateDatabase":       {"postgres://m", func(s settings) any { return s.migrateDatabaseURL }, "postgres://m"},
	"Redis":                 {"redis://r", func(s settings) any { return s.redisURL }, "redis://r"},
	"PublicURL":             {"https://x.example", func(s settings) any { return s.publicURL }, "https://x.example"},
	"SignCards":             {"true", func(s settings) any { return s.signCards }, true},
	"Watch":                 {"true", func(s settings) any { return s.watch }, true},
	"QueueWorkers":          {"7", func(s settings) any { return s.queueWorkers }, 7},
	"QueueMaxRetries":       {"8", func(s settings) any { return s.maxRetries }, 8},
	"QueueInitialDelay":     {"2s", func(s settings) any { return s.retryInitialDelay }, 2 * time.Second},
	"QueueMaxDelay":         {"9m", func(s settings) any { return s.retryMaxDelay }, 9 * time.Minute},
	"QueueStaleThreshold":   {"3s", func(s settings) any { return s.staleThreshold }, 3 * time.Second},
	"MaxInflight":           {"11", func(s settings) any { return s.maxInflight }, 11},
	"AppInflight":           {"12", func(s settings) any { return s.appInflight }, 12},
	"AppStoredBytes":        {"15", func(s settings) any { return s.appStoredBytes }, int64(15)},
	"LongestRun":            {"2h", func(s settings) any { return s.maxRunTime }, 2 * time.Hour},
	"MaxAnswer":             {"5", func(s settings) any { return s.maxAnswerMiB }, 5},
	"AnswerMemory":          {"321", func(s settings) any { return s.answerMemoryMiB }, 321},
	"SandboxUser":           {"daemon", func(s settings) any { return s.sandboxUser }, "daemon"},
	"SandboxPrograms":       {"/usr,/srv", func(s settings) any { return len(s.sandboxPrograms) }, 2},
	"MaxConnections":        {"13", func(s settings) any { return s.maxConnections }, 13},
	"MaxAddressConnections": {"14", func(s settings) any { return s.maxAddressConnections }, 14},
	"AppBodyRate":           {"15", func(s settings) any { return s.appBodyRateMiB }, 15},
	"TrustedProxies":        {"10.0.0.0/8", func(s settings) any { return len(s.trustedProxies) }, 1},
	"MetricsAddr":           {"127.0.0.1:1", func(s settings) any { return s.metricsAddr }, "127.0.0.1:1"},
	"ShutdownTimeout":       {"4s", func(s settings) any { return s.shutdownTimeout }, 4 * time.Second},
	"DrainDelay":            {"2s", func(s settings) any { return s.drainDelay }, 2 * time.Second},
	"LogLevel":              {"debug", func(s settings) any { return s.logLevel }, "debug"},
	"LogFormat":             {"json", func(s settings) any { return s.logFormat }, "json"},
}

var camelWord = regexp.MustCompile(`[A-Z]+[a-z]*`)

// TestEnvironment sets each flag's variable to a valid and to an invalid value.
func TestEnvironment(t *testing.T) {
	names := map[string]string{"GRPCPort": "STOA_GRPC_PORT", "PublicURL": "STOA_PUBLIC_URL", "PublicGRPC": "STOA_PUBLIC_GRPC"}
	for f := range reflect.TypeFor[flags]().Fields() {
		row, ok := flagCases[f.Name]
		if !ok {
			t.Errorf("%s: no row says that the flag acts", f.Name)
			continue
		}
		variable := names[f.Name]
		if variable == "" {
			variable = "STOA_" + strings.ToUpper(strings.Join(camelWord.FindAllString(f.Name, -1), "_"))
		}
		t.Run(variable, func(t *testing.T) {
			t.Setenv(variable, row.value)
			s, err := resolveSettings(flags{}, nil)
			switch {
			case row.want == nil:
				if err == nil || !strings.Contains(err.Error(), "not available yet") {
					t.Errorf("%s=%s: %v, want a refusal", variable, row.value, err)
				}
				return
			case err != nil:
				t.Fatal(err)
			case row.want(s) != row.is:
				t.Errorf("%s=%s: %v, want %v", variable, row.value, row.want(s), row.is)
			}
			if f.Type.Elem().Kind() == reflect.String && !strings.HasPrefix(f.Name, "Log") {
				return
			}
			t.Setenv(variable, "nonsense")
			if _, err := resolveSettings(flags{}, nil); err == nil {
				t.Errorf("%s=nonsense is taken", variable)
			}
		})
	}
}

// TestPrecedence checks that the command line overrides the environment.
func TestPrecedence(t *testing.T) {
	t.Setenv("STOA_PORT", "1")
	port := 2
	if s, err := resolveSettings(flags{Port: &port}, nil); err != nil || s.port != 2 {
		t.Errorf("port %d (%v), want the command line's", s.port, err)
	}
}

// TestDrainDelay checks that the drain delay is at most the shutdown timeout.
func TestDrainDelay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		shutdown, given, want time.Duration
		wrong                 bool
	}{
		{30 * time.Second, -1, 5 * time.Second, false},
		{2 * time.Second, -1, 2 * time.Second, false},
		{30 * time.Second, time.Second, time.Second, false},
		{30 * time.Second, 31 * time.Second, 0, true},
	} {
		line := flags{ShutdownTimeout: &c.shutdown}
		if c.given >= 0 {
			line.DrainDelay = &c.given
		}
		s, err := resolveSettings(line, nil)
		if (err != nil) != c.wrong || err == nil && s.drainDelay != c.want {
			t.Errorf("%+v: %v, %v", c, s.drainDelay, err)
		}
	}
}

// TestHasPrivateMetrics checks that app names are labels only if no other machine can read the metrics, on either
// address.
func TestHasPrivateMetrics(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		host, addr string
		want       bool
	}{
		{"127.0.0.1", "", true},
		{"localhost", "localhost:9090", true},
		{"::1", "[::1]:9090", true},
		{"127.0.0.1", "0.0.0.0:9090", false},
		{"127.0.0.1", ":9090", false},
		{"127.0.0.1", "10.0.0.1:9090", false},
		{"0.0.0.0", "127.0.0.1:9090", false},
		{"0.0.0.0", "", false},
	} {
		if got := (settings{host: c.host, metricsAddr: c.addr}).hasPrivateMetrics(); got != c.want {
			t.Errorf("--host %s --metrics-addr %s: %v, want %v", c.host, c.addr, got, c.want)
		}
	}
}

package server

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"stoa/agentsvc/config"
)

// flagCases has for each flag a value and the setting that it must change, "" for a flag that is refused as not
// available yet.
var flagCases = map[string]struct {
	value string
	want  func(s Settings) any
	is    any
}{
	"Host":                  {"192.0.2.1", func(s Settings) any { return s.Listen.Host }, "192.0.2.1"},
	"Port":                  {"1234", func(s Settings) any { return s.Listen.Port }, 1234},
	"GRPCPort":              {"1235", func(s Settings) any { return s.Listen.GRPCPort }, 1235},
	"PublicGRPC":            {"grpc.example:443", func(s Settings) any { return s.Cards.PublicGRPC }, "grpc.example:443"},
	"Studio":                {"true", func(s Settings) any { return s.Studio }, true},
	"NoConsole":             {"true", func(s Settings) any { return s.Console }, false},
	"Role":                  {"web", func(s Settings) any { return s.Role }, "web"},
	"Database":              {"sqlite://x.db", func(s Settings) any { return s.Database.URL }, "sqlite://x.db"},
	"MigrateDatabase":       {"postgres://m", func(s Settings) any { return s.Database.MigrateURL }, "postgres://m"},
	"NoMigrate":             {"true", func(s Settings) any { return s.Database.NoMigrate }, true},
	"Redis":                 {"redis://r", func(s Settings) any { return s.Database.RedisURL }, "redis://r"},
	"PublicURL":             {"https://x.example", func(s Settings) any { return s.Cards.PublicURL }, "https://x.example"},
	"SignCards":             {"true", func(s Settings) any { return s.Cards.Sign }, true},
	"Watch":                 {"true", func(s Settings) any { return s.Watch }, true},
	"QueueWorkers":          {"7", func(s Settings) any { return s.Queue.Workers }, 7},
	"QueueMaxRetries":       {"8", func(s Settings) any { return s.Queue.MaxRetries }, 8},
	"QueueInitialDelay":     {"2s", func(s Settings) any { return s.Queue.RetryInitialDelay }, 2 * time.Second},
	"QueueMaxDelay":         {"9m", func(s Settings) any { return s.Queue.RetryMaxDelay }, 9 * time.Minute},
	"QueueStaleThreshold":   {"3s", func(s Settings) any { return s.Queue.StaleThreshold }, 3 * time.Second},
	"MaxInflight":           {"11", func(s Settings) any { return s.Queue.MaxInflight }, 11},
	"AppInflight":           {"12", func(s Settings) any { return s.Queue.AppInflight }, 12},
	"AppStoredBytes":        {"15", func(s Settings) any { return s.Database.AppStoredBytes }, int64(15)},
	"LongestRun":            {"2h", func(s Settings) any { return s.Queue.MaxRunTime }, 2 * time.Hour},
	"MaxAnswer":             {"5", func(s Settings) any { return s.Bounds.MaxAnswerMiB }, 5},
	"VectorMemory":          {"322", func(s Settings) any { return s.Bounds.VectorMemoryMiB }, 322},
	"AnswerMemory":          {"321", func(s Settings) any { return s.Bounds.AnswerMemoryMiB }, 321},
	"MaxImport":             {"6", func(s Settings) any { return s.Bounds.MaxImportMiB }, int64(6)},
	"MaxImportRows":         {"16", func(s Settings) any { return s.Bounds.MaxImportRows }, int64(16)},
	"SandboxUser":           {"daemon", func(s Settings) any { return s.Sandbox.User }, "daemon"},
	"SandboxPrograms":       {"/usr,/srv", func(s Settings) any { return len(s.Sandbox.Programs) }, 2},
	"MaxConnections":        {"13", func(s Settings) any { return s.Listen.MaxConnections }, 13},
	"MaxAddressConnections": {"14", func(s Settings) any { return s.Listen.MaxAddressConnections }, 14},
	"AppBodyRate":           {"15", func(s Settings) any { return s.Bounds.AppBodyRateMiB }, 15},
	"TrustedProxies":        {"10.0.0.0/8", func(s Settings) any { return len(s.Listen.TrustedProxies) }, 1},
	"ConsoleAddr":           {"127.0.0.1:2", func(s Settings) any { return s.Listen.ConsoleAddr }, "127.0.0.1:2"},
	"MetricsAddr":           {"127.0.0.1:1", func(s Settings) any { return s.Listen.MetricsAddr }, "127.0.0.1:1"},
	"ShutdownTimeout":       {"4s", func(s Settings) any { return s.Shutdown.Timeout }, 4 * time.Second},
	"DrainDelay":            {"2s", func(s Settings) any { return s.Shutdown.DrainDelay }, 2 * time.Second},
	"LogLevel":              {"debug", func(s Settings) any { return s.Log.Level }, "debug"},
	"LogFormat":             {"json", func(s Settings) any { return s.Log.Format }, "json"},
}

// expectedValues are what an error about a variable says that it must be, by the type of its flag.
var expectedValues = map[string]string{
	"int": "a whole number such as 8", "int64": "a whole number such as 8", "bool": "true or false", "time.Duration": "a duration such as 30s or 5m",
}

var camelWord = regexp.MustCompile(`[A-Z]+[a-z]*`)

// TestEnvironment sets each flag's variable to a valid and to an invalid value.
func TestEnvironment(t *testing.T) {
	names := map[string]string{"GRPCPort": "STOA_GRPC_PORT", "PublicURL": "STOA_PUBLIC_URL", "PublicGRPC": "STOA_PUBLIC_GRPC"}
	for f := range reflect.TypeFor[Flags]().Fields() {
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
			if f.Name == "MigrateDatabase" {
				t.Setenv(DatabaseName, "postgres://d")
			}
			t.Setenv(variable, row.value)
			s, err := ResolveSettings(Flags{}, nil)
			switch {
			case err != nil:
				t.Fatal(err)
			case row.want(s) != row.is:
				t.Errorf("%s=%s: %v, want %v", variable, row.value, row.want(s), row.is)
			}
			if f.Type.Elem().Kind() == reflect.String && !strings.HasPrefix(f.Name, "Log") {
				return
			}
			t.Setenv(variable, "nonsense")
			_, err = ResolveSettings(Flags{}, nil)
			if err == nil {
				t.Fatalf("%s=nonsense is taken", variable)
			}
			want := expectedValues[f.Type.Elem().String()]
			if example := map[string]string{"STOA_PORT": "8080", "STOA_GRPC_PORT": "50051"}[variable]; example != "" {
				want = "a whole number such as " + example
			}
			if want != "" && err.Error() != variable+" in the environment must be "+want+`, not "nonsense"` {
				t.Errorf("%s=nonsense: %v, want that it must be %s", variable, err, want)
			}
		})
	}
}

// TestLongValue checks that a long value, such as a secret in the wrong variable, is not shown.
func TestLongValue(t *testing.T) {
	t.Setenv("STOA_PORT", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
	if _, err := ResolveSettings(Flags{}, nil); err == nil || err.Error() != "STOA_PORT in the environment must be a whole number such as 8080" {
		t.Errorf("the error is %v", err)
	}
}

// TestPrecedence checks that the command line overrides the environment.
func TestPrecedence(t *testing.T) {
	t.Setenv("STOA_PORT", "1")
	port := 2
	if s, err := ResolveSettings(Flags{Port: &port}, nil); err != nil || s.Listen.Port != 2 {
		t.Errorf("port %d (%v), want the command line's", s.Listen.Port, err)
	}
}

// TestLogFile checks that the default of logger.file may be written out: stderr is the standard error stream, not a file
// of that name.
func TestLogFile(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ block, want string }{
		{"{}", ""},
		{"{logger: {level: warn}}", ""},
		{"{logger: {file: stderr}}", ""},
		{`{logger: {file: ""}}`, ""},
		{"{logger: {file: ./stderr}}", "./stderr"},
		{"{logger: {file: stoa.log}}", "stoa.log"},
	} {
		cfg, err := config.Parse([]byte(c.block), config.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := ResolveSettings(Flags{}, cfg)
		if err != nil || s.Log.File != c.want {
			t.Errorf("%s: the file is %q (%v), want %q", c.block, s.Log.File, err, c.want)
		}
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
		line := Flags{ShutdownTimeout: &c.shutdown}
		if c.given >= 0 {
			line.DrainDelay = &c.given
		}
		s, err := ResolveSettings(line, nil)
		if (err != nil) != c.wrong || err == nil && s.Shutdown.DrainDelay != c.want {
			t.Errorf("%+v: %v, %v", c, s.Shutdown.DrainDelay, err)
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
		if got := (Settings{Listen: ListenSettings{Host: c.host, MetricsAddr: c.addr}}).hasPrivateMetrics(); got != c.want {
			t.Errorf("--host %s --metrics-addr %s: %v, want %v", c.host, c.addr, got, c.want)
		}
	}
}

// TestSecretFiles reads addresses and secrets from files: with the value alone, with lines NAME=value, and with mistakes.
func TestSecretFiles(t *testing.T) {
	for _, c := range []struct{ name, content, want, problem string }{
		{"STOA_DATABASE", "postgres://stoa:secret@db/stoa?application_name=x\n", "postgres://stoa:secret@db/stoa?application_name=x", ""},
		{"STOA_MIGRATE_DATABASE", "postgres://owner@db/stoa", "postgres://owner@db/stoa", ""},
		{"STOA_REDIS", "redis://:secret@cache", "redis://:secret@cache", ""},
		{"STOA_ADMIN_SECRET", "secret\n", "secret", ""},
		{"STOA_ADMIN_SECRET", "STOA_MASTER_KEY=key\nSTOA_ADMIN_SECRET=a=b\n", "a=b", ""},
		{"STOA_ADMIN_SECRET", "STOA_MASTER_KEY=key\n", "", "has a line for STOA_MASTER_KEY, and none for STOA_ADMIN_SECRET"},
		{"STOA_ADMIN_SECRET", " \n", "", "is empty"},
	} {
		t.Run(c.name+" "+c.problem, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "secret")
			if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			t.Setenv(c.name+"_FILE", path)
			got, err := readSecret(c.name)
			if got != c.want || (err == nil) != (c.problem == "") || err != nil && !strings.Contains(err.Error(), c.problem) {
				t.Errorf("%q, %v; want %q, %q", got, err, c.want, c.problem)
			}
			if c.name == MigrateDatabaseName {
				t.Setenv(DatabaseName, "postgres://stoa@db/stoa")
			}
			s, err := ResolveSettings(Flags{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			read := map[string]string{"STOA_DATABASE": s.Database.URL, "STOA_MIGRATE_DATABASE": s.Database.MigrateURL, "STOA_REDIS": s.Database.RedisURL}
			if url, ok := read[c.name]; ok && url != c.want {
				t.Errorf("the setting is %q", url)
			}
			given := "postgres://given"
			if s, err := ResolveSettings(Flags{Database: &given}, nil); err != nil || s.Database.URL != given {
				t.Errorf("the command line's database is not used: %q, %v", s.Database.URL, err)
			}
		})
	}
}

// TestServesConsole checks that a process serves the console unless it is off or a worker.
func TestServesConsole(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		role    string
		console bool
		want    int // routes
	}{
		{roleAll, true, 2}, {roleWeb, true, 2}, {roleWorker, true, 0}, {roleAll, false, 0},
	} {
		routes, err := newConsole(Settings{Role: tt.role, Console: tt.console}, config.Auth{}, nil)
		if err != nil || len(routes) != tt.want {
			t.Errorf("%+v: %d routes, %v", tt, len(routes), err)
		}
	}
}

package server

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kelseyhightower/envconfig"

	"stoa/agentsvc/config"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/runner"
	"stoa/cmd/stoa/server/listener"
	"stoa/tenancy/transfer"
)

// Flags are the settings of a process. Each may be given on the command line or in the environment, where its name is
// STOA_ and the flag's name in capitals. A nil field was not given, so that ResolveSettings can apply the order
// command line, environment, file, default. The number in parentheses in a help text is the default, which
// ResolveSettings sets.
type Flags struct {
	// Listeners, role and storage.
	Host            *string `help:"Address to listen on (0.0.0.0)."`
	Port            *int    `help:"HTTP port, 0 for any that is free (8080)."`
	GRPCPort        *int    `split_words:"true" name:"grpc-port" help:"gRPC port, 0 for any that is free (50051; where --port is 0, any that is free)."`
	Studio          *bool   `help:"Read and write the file of --config over HTTP, by callers with a role of server.studio.allowed_roles."`
	NoConsole       *bool   `split_words:"true" help:"Do not serve the console, the pages at /console/."`
	Role            *string `enum:"all,web,worker" help:"all, web (answers requests, executes no runs) or worker (executes runs, answers no calls) (all)."`
	Database        *string `placeholder:"URL" help:"sqlite://PATH, sqlite://:memory: or postgres://... (sqlite://stoa.db)."`
	MigrateDatabase *string `split_words:"true" placeholder:"URL" help:"The PostgreSQL login that may change the schema, where it differs."`
	NoMigrate       *bool   `split_words:"true" help:"Never change the schema: refuse to start where it is behind."`
	Redis           *string `placeholder:"URL" help:"redis://...: signals other processes faster than PostgreSQL alone, and counts calls for limits."`
	// What agent cards show.
	PublicGRPC *string `split_words:"true" name:"public-grpc" placeholder:"HOST:PORT" help:"The address for gRPC that cards show (the host of the public URL, and the gRPC port)."`
	PublicURL  *string `split_words:"true" name:"public-url" placeholder:"URL" help:"The address that cards show."`
	SignCards  *bool   `split_words:"true" help:"Sign the cards of agents, with keys derived from the master keys."`
	// Configuration and the queue of runs.
	Watch               *bool          `help:"Apply changes of the configuration file without a restart, as those of its .env always are."`
	QueueWorkers        *int           `split_words:"true" help:"Queued runs at work at a time (4)."`
	QueueMaxRetries     *int           `split_words:"true" help:"Tries of a run after the first (3)."`
	QueueInitialDelay   *time.Duration `split_words:"true" help:"Longest delay before the second try, doubled for each further one; a delay is random, at least half as long (1s)."`
	QueueMaxDelay       *time.Duration `split_words:"true" help:"Longest delay between tries (5m)."`
	QueueStaleThreshold *time.Duration `split_words:"true" help:"Age of the last heartbeat at which a worker counts as dead (5m)."`
	// Bounds: of runs, of stored data, of one execution and its answers.
	MaxInflight    *int           `split_words:"true" help:"Live requests' runs at a time in this process (512)."`
	AppInflight    *int           `split_words:"true" help:"Of those, how many of one app (as many as it leaves free to others, at most half)."`
	AppStoredBytes *int64         `split_words:"true" help:"What one app may store in the database, in bytes: tasks, conversations, memories (10 GiB). 0: no bound."`
	LongestRun     *time.Duration `split_words:"true" help:"How long one execution of a task's turn may take before it fails (30m)."`
	MaxAnswer      *int           `split_words:"true" placeholder:"MIB" help:"MiB of text of one answer of a model (4)."`
	AnswerMemory   *int           `split_words:"true" placeholder:"MIB" help:"MiB of answers and conversations in memory at a time, of runs and of callers each; an app has as many as it leaves free (160)."`
	VectorMemory   *int           `split_words:"true" placeholder:"MIB" help:"MiB of vectors in memory at a time, of chromem and of documents that are being indexed; an app has as many as it leaves free (512)."`
	MaxImport      *int64         `split_words:"true" placeholder:"MIB" help:"MiB of a file that stoa app import sends (8192)."`
	MaxImportRows  *int64         `split_words:"true" placeholder:"ROWS" help:"Rows of a file that stoa app import sends (5000000)."`
	// Programs of apps.
	SandboxUser     *string `split_words:"true" placeholder:"USER" help:"The user, by name or number, that programs of apps run as where the server is root (nobody)."`
	SandboxPrograms *string `split_words:"true" placeholder:"FOLDER,..." help:"Folders, besides the system's, whose programs apps may run and read (none)."`
	// Bounds of clients and trust in proxies.
	MaxConnections        *int    `split_words:"true" help:"Connections of clients at a time, HTTP and gRPC together (what the descriptors allow, at most 16384)."`
	MaxAddressConnections *int    `split_words:"true" help:"Connections of clients at a time from one address, trusted proxies and loopback excepted (an eighth of all)."`
	AppBodyRate           *int    `split_words:"true" help:"MiB a second of large messages that are received for each app, twice as many at once; a faster sender waits (16)."`
	TrustedProxies        *string `split_words:"true" placeholder:"CIDR,..." help:"Proxies whose X-Forwarded-For is trusted (none)."`
	// Operation: metrics, shutdown, logs.
	ConsoleAddr     *string        `split_words:"true" placeholder:"ADDR" help:"Serve the console, and the API that its pages call, on a listener of their own."`
	MetricsAddr     *string        `split_words:"true" placeholder:"ADDR" help:"Serve metrics on a listener of their own."`
	ShutdownTimeout *time.Duration `split_words:"true" help:"How long a stopping process waits for its runs (30s)."`
	DrainDelay      *time.Duration `split_words:"true" help:"How long of that, at most, it serves until clients of /ready have noticed (5s)."`
	LogLevel        *string        `split_words:"true" enum:"debug,info,warn,error" help:"debug, info, warn or error (info)."`
	LogFormat       *string        `split_words:"true" enum:"simple,verbose,json" help:"simple, verbose or json (simple)."`
}

// environment is what the variables of the environment set: the flags, and what is no flag.
type environment struct {
	Flags
	AppHosts []string `split_words:"true"`
}

// Settings are the flags after every source was applied and checked. It is a value and does not change after
// ResolveSettings. "" and 0 turn a feature off where the flag's help describes that.
type Settings struct {
	// Role is roleAll, roleWeb or roleWorker.
	Role     string
	Watch    bool // apply changes of the configuration file
	Studio   bool // read and write the configuration file over HTTP
	Console  bool // serve the console
	Listen   ListenSettings
	Cards    CardSettings
	Database DatabaseSettings
	Queue    QueueSettings
	Bounds   BoundSettings
	Sandbox  SandboxSettings
	Shutdown ShutdownSettings
	Log      LogSettings
}

// ListenSettings are the addresses of the process, and what its clients may have of it.
type ListenSettings struct {
	Host           string
	Port, GRPCPort int
	MetricsAddr    string
	// ConsoleAddr is where alone the console is served; "" = the main listener.
	ConsoleAddr string
	// AppHosts are host names with {app} in place of an app's name, from STOA_APP_HOSTS only.
	AppHosts []string
	// TrustedProxies are the address ranges whose X-Forwarded-For is believed.
	TrustedProxies                        []netip.Prefix
	MaxConnections, MaxAddressConnections int
}

// CardSettings are what agent cards show.
type CardSettings struct {
	PublicURL  string // as given, without a trailing slash
	PublicGRPC string // host:port
	Sign       bool
}

// DatabaseSettings are the databases of the process; URLs are as given.
type DatabaseSettings struct {
	URL, MigrateURL, RedisURL string
	// NoMigrate makes a process refuse to start on a schema that is behind.
	NoMigrate bool
	// AppStoredBytes is what one app may store in the database, 0 = unlimited.
	AppStoredBytes int64
}

// QueueSettings are the bounds and the timing of runs.
type QueueSettings struct {
	Workers, MaxInflight int
	// AppInflight 0 = derived from the runs of the other apps.
	AppInflight int
	// MaxRetries counts the attempts of a run after the first.
	MaxRetries                       int
	RetryInitialDelay, RetryMaxDelay time.Duration
	// StaleThreshold is the age of the last heartbeat at which a worker counts as dead.
	StaleThreshold time.Duration
	MaxRunTime     time.Duration // of one execution of a turn
}

// BoundSettings bound the memory and the intake of messages.
type BoundSettings struct {
	MaxAnswerMiB, AnswerMemoryMiB, VectorMemoryMiB int // MiB
	AppBodyRateMiB                                 int // MiB a second
	// MaxImportMiB and MaxImportRows bound the file of an app that is imported.
	MaxImportMiB, MaxImportRows int64
}

// SandboxSettings are how programs of apps run.
type SandboxSettings struct {
	User     string   // "" for the default of package sandbox
	Programs []string // absolute folders with symbolic links resolved
}

// ShutdownSettings are the time limits of a stopping process; DrainDelay is a part of Timeout.
type ShutdownSettings struct{ Timeout, DrainDelay time.Duration }

// LogSettings are how and where the process logs.
type LogSettings struct {
	Level, Format string
	File          string // "" = standard error
}

// ResolveSettings takes each setting from the command line, else the environment, else the configuration file, else
// its default, and checks the ranges. cfg may be nil. Its errors name the flag or variable and never a long value of a
// variable, which may be a secret.
func ResolveSettings(line Flags, cfg *config.Config) (Settings, error) {
	var e environment
	if err := envconfig.Process("stoa", &e); err != nil {
		return Settings{}, envError(err)
	}
	// The built-in configuration supplies the defaults of host, ports and logger.
	if cfg == nil {
		cfg = config.DefaultConfig(nil)
	}
	databaseURL, migrateURL, redisURL, err := findURLs(line, e.Flags)
	if err != nil {
		return Settings{}, err
	}
	s := Settings{
		Role:  firstNonNil(roleAll, line.Role, e.Role),
		Watch: firstNonNil(false, line.Watch, e.Watch),
		Listen: ListenSettings{
			Host:           firstNonNil(cfg.Server.Host, line.Host, e.Host),
			Port:           firstNonNil(cfg.Server.Port, line.Port, e.Port),
			GRPCPort:       firstNonNil(cfg.Server.GRPCPort, line.GRPCPort, e.GRPCPort),
			MetricsAddr:    firstNonNil("", line.MetricsAddr, e.MetricsAddr),
			ConsoleAddr:    firstNonNil("", line.ConsoleAddr, e.ConsoleAddr),
			AppHosts:       e.AppHosts,
			MaxConnections: firstNonNil(listener.DefaultMaxConnections(), line.MaxConnections, e.MaxConnections),
		},
		Cards: CardSettings{
			PublicURL:  strings.TrimSuffix(firstNonNil("", line.PublicURL, e.PublicURL), "/"),
			PublicGRPC: firstNonNil("", line.PublicGRPC, e.PublicGRPC),
			Sign:       firstNonNil(false, line.SignCards, e.SignCards),
		},
		Database: DatabaseSettings{
			URL: databaseURL, MigrateURL: migrateURL, RedisURL: redisURL,
			NoMigrate:      firstNonNil(false, line.NoMigrate, e.NoMigrate),
			AppStoredBytes: firstNonNil(int64(10)<<30, line.AppStoredBytes, e.AppStoredBytes),
		},
		Queue: QueueSettings{
			Workers:           firstNonNil(4, line.QueueWorkers, e.QueueWorkers),
			MaxInflight:       firstNonNil(512, line.MaxInflight, e.MaxInflight),
			AppInflight:       firstNonNil(0, line.AppInflight, e.AppInflight),
			MaxRetries:        firstNonNil(3, line.QueueMaxRetries, e.QueueMaxRetries),
			RetryInitialDelay: firstNonNil(time.Second, line.QueueInitialDelay, e.QueueInitialDelay),
			RetryMaxDelay:     firstNonNil(5*time.Minute, line.QueueMaxDelay, e.QueueMaxDelay),
			StaleThreshold:    firstNonNil(5*time.Minute, line.QueueStaleThreshold, e.QueueStaleThreshold),
			MaxRunTime:        firstNonNil(runner.DefaultMaxDuration, line.LongestRun, e.LongestRun),
		},
		Bounds: BoundSettings{
			MaxAnswerMiB:    firstNonNil(llm.DefaultMaxBytes>>20, line.MaxAnswer, e.MaxAnswer),
			AnswerMemoryMiB: firstNonNil(defaultAnswerMemory, line.AnswerMemory, e.AnswerMemory),
			VectorMemoryMiB: firstNonNil(defaultVectorMemory, line.VectorMemory, e.VectorMemory),
			AppBodyRateMiB:  firstNonNil(16, line.AppBodyRate, e.AppBodyRate),
			MaxImportMiB:    firstNonNil(transfer.DefaultMaxBytes>>20, line.MaxImport, e.MaxImport),
			MaxImportRows:   firstNonNil(transfer.DefaultMaxRows, line.MaxImportRows, e.MaxImportRows),
		},
		Sandbox:  SandboxSettings{User: firstNonNil("", line.SandboxUser, e.SandboxUser)},
		Shutdown: ShutdownSettings{Timeout: firstNonNil(30*time.Second, line.ShutdownTimeout, e.ShutdownTimeout)},
		Log: LogSettings{
			Level:  firstNonNil(cfg.Logger.Level, line.LogLevel, e.LogLevel),
			Format: firstNonNil(cfg.Logger.Format, line.LogFormat, e.LogFormat),
			File:   cfg.Logger.Path(),
		},
	}
	// The sandbox compares resolved paths, so that a symbolic link must be resolved here.
	for folder := range strings.SplitSeq(firstNonNil("", line.SandboxPrograms, e.SandboxPrograms), ",") {
		if folder == "" {
			continue
		}
		resolved, err := filepath.EvalSymlinks(folder)
		if err != nil || !filepath.IsAbs(folder) {
			return s, fmt.Errorf("--sandbox-programs: %q is no absolute path of a folder that exists", folder)
		}
		s.Sandbox.Programs = append(s.Sandbox.Programs, resolved)
	}
	// With --port 0 (tests, several servers on one machine) a fixed default port for gRPC would collide.
	if s.Listen.Port == 0 && line.GRPCPort == nil && e.GRPCPort == nil && s.Listen.GRPCPort == 50051 {
		s.Listen.GRPCPort = 0
	}
	s.Listen.MaxAddressConnections = firstNonNil(max(s.Listen.MaxConnections/listener.AddressShares, 1), line.MaxAddressConnections, e.MaxAddressConnections)
	// The default must not exceed a short --shutdown-timeout.
	s.Shutdown.DrainDelay = firstNonNil(min(5*time.Second, s.Shutdown.Timeout), line.DrainDelay, e.DrainDelay)
	s.Studio = firstNonNil(false, line.Studio, e.Studio)
	s.Console = !firstNonNil(false, line.NoConsole, e.NoConsole)
	s.Listen.TrustedProxies, err = parsePrefixes(firstNonNil("", line.TrustedProxies, e.TrustedProxies))
	return s, errors.Join(err, s.checkRanges())
}

// findURLs returns the addresses of the database, of its migrating login and of Redis. Each may also come from a file,
// because it may contain a password.
func findURLs(line, env Flags) (database, migrating, redis string, err error) {
	database, migrating, err = FindDatabase(firstNonNil("", line.Database, env.Database), firstNonNil("", line.MigrateDatabase, env.MigrateDatabase))
	if err == nil {
		redis, err = FindValue(firstNonNil("", line.Redis, env.Redis), redisName, "")
	}
	return database, migrating, redis, err
}

// Bounds of the memory for answers and conversations, in MiB. One app may have half of the pool (capacity.Pool), and
// half must hold the largest message and answer.
const (
	defaultAnswerMemory = 160
	minAnswerMemory     = 160
)

// Bounds of the memory for vectors, in MiB. One app may have half of the pool: with the default 256 MiB, which are 40,000
// vectors of 1,536 numbers. A document of some thousand chunks must fit into the least.
const (
	defaultVectorMemory = 512
	minVectorMemory     = 64
)

// firstNonNil returns the first value that was given, else fallback.
func firstNonNil[T any](fallback T, given ...*T) T {
	for _, g := range given {
		if g != nil {
			return *g
		}
	}
	return fallback
}

// checkRanges returns one joined error that names every setting out of range.
func (s Settings) checkRanges() error {
	var errs []error
	bad := func(name, want string) { errs = append(errs, fmt.Errorf("%s must be %s", name, want)) }
	if s.Listen.Port < 0 || s.Listen.Port > 65535 {
		bad("--port", "between 0 and 65535")
	}
	if s.Listen.GRPCPort < 0 || s.Listen.GRPCPort > 65535 {
		bad("--grpc-port", "between 0 and 65535")
	}
	if _, port, err := net.SplitHostPort(s.Cards.PublicGRPC); s.Cards.PublicGRPC != "" && (err != nil || port == "") {
		bad("--public-grpc", "a host and port such as grpc.example.com:443")
	}
	if s.Queue.Workers < 1 {
		bad("--queue-workers", "at least 1")
	}
	if s.Queue.MaxInflight < 1 {
		bad("--max-inflight", "at least 1")
	}
	if s.Queue.AppInflight < 0 || s.Queue.AppInflight > s.Queue.MaxInflight {
		bad("--app-inflight", "0 or more and not more than --max-inflight")
	}
	if s.Database.AppStoredBytes < 0 {
		bad("--app-stored-bytes", "0 or more")
	}
	if s.Queue.MaxRunTime < time.Second {
		bad("--longest-run", "at least 1s")
	}
	if s.Bounds.MaxAnswerMiB < 1 || s.Bounds.MaxAnswerMiB > 1024 {
		bad("--max-answer", "between 1 and 1024 MiB")
	}
	// An app may have half of the pool: at least four times the largest answer.
	if least := max(minAnswerMemory, 8*s.Bounds.MaxAnswerMiB); s.Bounds.AnswerMemoryMiB < least || s.Bounds.AnswerMemoryMiB > 1<<20 {
		bad("--answer-memory", fmt.Sprintf("at least %d MiB, so that an app may have the largest message and answer in memory", least))
	}
	if s.Bounds.VectorMemoryMiB < minVectorMemory || s.Bounds.VectorMemoryMiB > 1<<20 {
		bad("--vector-memory", fmt.Sprintf("between %d and %d MiB", minVectorMemory, 1<<20))
	}
	if s.Listen.MaxConnections < 1 {
		bad("--max-connections", "at least 1")
	}
	if s.Listen.MaxAddressConnections < 1 {
		bad("--max-address-connections", "at least 1")
	}
	if s.Bounds.AppBodyRateMiB < 1 || s.Bounds.AppBodyRateMiB > 1<<20 {
		bad("--app-body-rate", "between 1 and 1048576")
	}
	if s.Bounds.MaxImportMiB < 1 || s.Bounds.MaxImportMiB > 1<<20 {
		bad("--max-import", "between 1 and 1048576 MiB")
	}
	if s.Bounds.MaxImportRows < 1 {
		bad("--max-import-rows", "at least 1")
	}
	if s.Queue.MaxRetries < 0 {
		bad("--queue-max-retries", "0 or more")
	}
	// An initial delay of 0 could not be doubled.
	if s.Queue.RetryInitialDelay <= 0 || s.Queue.RetryMaxDelay < s.Queue.RetryInitialDelay {
		bad("--queue-initial-delay", "more than 0 and not more than --queue-max-delay")
	}
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, s.Log.Level) {
		bad("--log-level", "debug, info, warn or error")
	}
	if !slices.Contains([]string{"simple", "verbose", "json"}, s.Log.Format) {
		bad("--log-format", "simple, verbose or json")
	}
	if s.Cards.PublicURL != "" && !strings.HasPrefix(s.Cards.PublicURL, "http://") && !strings.HasPrefix(s.Cards.PublicURL, "https://") {
		bad("--public-url", "a URL such as https://agents.example.com")
	}
	if s.Shutdown.Timeout < 0 {
		bad("--shutdown-timeout", "0 or more")
	}
	// The drain delay is a part of the shutdown timeout.
	if s.Shutdown.DrainDelay < 0 || s.Shutdown.DrainDelay > s.Shutdown.Timeout {
		bad("--drain-delay", "0 or more and not more than --shutdown-timeout")
	}
	if !slices.Contains([]string{roleAll, roleWeb, roleWorker}, s.Role) {
		bad("--role", "all, web or worker")
	}
	// Leases are renewed several times within the threshold. Below a second a slow commit would look like a dead
	// worker.
	if s.Queue.StaleThreshold < time.Second {
		bad("--queue-stale-threshold", "at least 1s")
	}
	return errors.Join(errs...)
}

// servesConsole reports whether the process serves the console.
func (s Settings) servesConsole() bool { return s.Console && s.Role != roleWorker }

// isLoopback reports whether only processes of this machine can reach the server.
func (s Settings) isLoopback() bool { return isLocalHost(s.Listen.Host) }

// hasPrivateMetrics reports whether only processes of this machine can read the metrics.
func (s Settings) hasPrivateMetrics() bool {
	// "" for an invalid address, which fails later in serveMetrics
	host, _, _ := net.SplitHostPort(s.Listen.MetricsAddr)
	return s.isLoopback() && (s.Listen.MetricsAddr == "" || isLocalHost(host))
}

// isLocalHost reports whether host is localhost or a loopback address. Other names are not resolved and count as
// public.
func isLocalHost(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// parsePrefixes parses the comma-separated list of --trusted-proxies. A bare address is a prefix of its full length.
func parsePrefixes(list string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for field := range strings.SplitSeq(list, ",") {
		field = strings.TrimSpace(field)
		if field == "" {
			continue
		}
		p, err := netip.ParsePrefix(field)
		if err != nil {
			addr, aerr := netip.ParseAddr(field)
			if aerr != nil {
				return nil, fmt.Errorf("--trusted-proxies: %q is not an address range such as 10.0.0.0/8", field)
			}
			p = netip.PrefixFrom(addr, addr.BitLen())
		}
		out = append(out, p)
	}
	return out, nil
}

// settingError is an error that only a change of the settings, of the operator's file or of a certificate cures: another
// start would end alike. Errors of databases and ports are none, since they pass.
type settingError struct{ error }

// WrongSetting marks the error for callers in other packages, which find it with errors.As and an interface.
func (settingError) WrongSetting() {}

// Unwrap returns the error for errors.Is and errors.As.
func (e settingError) Unwrap() error { return e.error }

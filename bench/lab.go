package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"stoa/bench/pg"
	"stoa/bench/proc"
	"stoa/bench/stoa"
)

var errNoPostgres = errors.New("no PostgreSQL was named (-postgres or STOA_TEST_POSTGRES)")

// lab holds what every experiment needs.
type lab struct {
	options
	self    string // this program
	dir     string // scratch files and logs
	cluster *pg.Cluster
	cache   *redisServer // nil: none
	keys    stoa.Keys
	names   int
	made    []string // databases to drop
	failed  bool     // keep the logs
}

func open(ctx context.Context, o options) (*lab, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	if o.binary, err = filepath.Abs(o.binary); err != nil {
		return nil, fmt.Errorf("find stoa: %w", err)
	}
	if _, err := os.Stat(o.binary); err != nil {
		return nil, fmt.Errorf("stoa is not built (make build): %w", err)
	}
	if o.against != "" {
		if o.against, err = filepath.Abs(o.against); err != nil {
			return nil, fmt.Errorf("find the earlier build: %w", err)
		}
		if _, err := os.Stat(o.against); err != nil {
			return nil, fmt.Errorf("-against: %w", err)
		}
	}
	l := &lab{options: o, self: self, keys: stoa.NewKeys()}
	if o.postgres != "" {
		if l.cluster, err = pg.Open(ctx, o.postgres); err != nil {
			return nil, err
		}
	}
	if o.redis != "" {
		if l.cache, err = openRedis(ctx, o.redis); err != nil {
			return nil, err
		}
	}
	if l.dir, err = os.MkdirTemp("", "stoa-bench-"); err != nil {
		return nil, fmt.Errorf("make a scratch folder: %w", err)
	}
	return l, nil
}

// close drops the databases and, if all went well, the logs.
func (l *lab) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, name := range l.made {
		if err := l.cluster.Drop(ctx, name); err != nil {
			progress("%v", err)
		}
	}
	if l.failed {
		progress("the servers' logs are in %s", l.dir)
		return
	}
	_ = os.RemoveAll(l.dir)
}

// path is a new file name in the scratch folder.
func (l *lab) path(name string) string {
	l.names++
	return filepath.Join(l.dir, fmt.Sprintf("%03d-%s", l.names, name))
}

// database creates an empty database of the bench's own and returns its name.
func (l *lab) database(ctx context.Context) (string, error) {
	if l.cluster == nil {
		return "", errNoPostgres
	}
	l.names++
	name := fmt.Sprintf("stoa_bench_%d_%d", os.Getpid(), l.names)
	l.made = append(l.made, name)
	return name, l.cluster.Fresh(ctx, name)
}

// sqlite is the address of a new SQLite file.
func (l *lab) sqlite() string { return "sqlite://" + l.path("stoa.db") }

// stoa starts the product on the database at url.
func (l *lab) stoa(ctx context.Context, url string, env ...string) (*stoa.Server, error) {
	return stoa.Start(ctx, stoa.Options{
		Binary: l.binary, Database: url, Redis: l.redis, Keys: l.keys, Env: env, Dir: l.dir, Log: l.path("stoa.log"),
	})
}

// helper starts one of [servers] and returns its base URL.
func (l *lab) helper(ctx context.Context, name string) (*proc.Process, string, error) {
	port, err := proc.FreePort()
	if err != nil {
		return nil, "", err
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	p, err := proc.Start(proc.Command{Path: l.self, Args: []string{name, addr}, Env: os.Environ(), Dir: l.dir, Log: l.path(name + ".log")})
	if err != nil {
		return nil, "", err
	}
	if _, err := p.Ready(ctx, "http://"+addr+"/health"); err != nil {
		p.Stop()
		return nil, "", err
	}
	return p, "http://" + addr, nil
}

// progress reports to the terminal what is measured; the figures go to standard output.
func progress(format string, args ...any) {
	fmt.Fprintln(os.Stderr, time.Now().Format("15:04:05"), strings.TrimSpace(fmt.Sprintf(format, args...)))
}

// Package stoa starts the product as its users do, as a process with flags and an environment, and speaks to it
// over HTTP: the admin API to make tenants and tokens, the extension surface to call their agents.
package stoa

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"stoa/bench/proc"
)

// Options says how to start a server.
type Options struct {
	Binary   string
	Database string   // sqlite://path or postgres://...
	Redis    string   // empty: in process
	Keys     Keys     // made by NewKeys; the same for every server on one database
	Env      []string // besides PATH, HOME and the keys
	Dir      string   // working directory
	Log      string
}

// Keys are the secrets of an installation.
type Keys struct{ admin, master string }

// NewKeys makes random ones.
func NewKeys() Keys {
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	return Keys{admin: rand.Text() + rand.Text(), master: base64.StdEncoding.EncodeToString(key)}
}

// Server is a running stoa.
type Server struct {
	*proc.Process
	URL     string
	GRPC    string        // host and port of gRPC
	Startup time.Duration // from the start of the process to the first 200 on /health
	admin   string
}

// Start runs `stoa serve` and waits until it is ready for calls.
func Start(ctx context.Context, o Options) (*Server, error) {
	port, err := proc.FreePort()
	if err != nil {
		return nil, err
	}
	grpc, err := proc.FreePort()
	if err != nil {
		return nil, err
	}
	args := []string{"serve", "--host", "127.0.0.1", "--port", strconv.Itoa(port), "--grpc-port", strconv.Itoa(grpc), "--database", o.Database}
	if o.Redis != "" {
		args = append(args, "--redis", o.Redis)
	}
	env := append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + o.Dir,
		"STOA_ADMIN_SECRET=" + o.Keys.admin, "STOA_MASTER_KEY=" + o.Keys.master,
	}, o.Env...)
	p, err := proc.Start(proc.Command{Path: o.Binary, Args: args, Env: env, Dir: o.Dir, Log: o.Log})
	if err != nil {
		return nil, err
	}
	s := &Server{Process: p, URL: "http://127.0.0.1:" + strconv.Itoa(port), GRPC: "127.0.0.1:" + strconv.Itoa(grpc), admin: o.Keys.admin}
	if s.Startup, err = p.Ready(ctx, s.URL+"/health"); err == nil {
		_, err = p.Ready(ctx, s.URL+"/ready")
	}
	if err != nil {
		p.Stop()
		return nil, err
	}
	return s, nil
}

// Version is what `stoa version` prints, in one line.
func Version(ctx context.Context, binary string) (string, error) {
	out, err := exec.CommandContext(ctx, binary, "version").Output()
	if err != nil {
		return "", fmt.Errorf("ask for stoa's version: %w", err)
	}
	return strings.Join(strings.Fields(string(out)), " "), nil
}

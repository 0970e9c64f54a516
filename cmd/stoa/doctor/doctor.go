// Package doctor checks a deployment from where it runs: what a server with the same settings would meet at its database,
// Redis, certificate, identity provider, collectors and machine. It changes nothing anywhere, and no text of it has a
// secret.
//
// [Inspect] runs all checks at the same time and returns them in one order. A check is a function of this package that
// returns what it saw and what to do. It uses the code of the server where that has such code, so that both decide alike:
// the settings, the keyring, the guard of outgoing connections, the key sets of issuers, the sandbox.
package doctor

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"stoa/agentsvc/config"
	"stoa/agentsvc/egress"
	"stoa/cmd/stoa/server"
)

// Status is the outcome of a check, or the worst of several.
type Status string

// The outcomes. A skipped check had nothing to look at.
const (
	OK      Status = "ok"
	Warning Status = "warn"
	Failure Status = "fail"
	Skipped Status = "skip"
)

// Check is the outcome of one check.
type Check struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	// Detail is what was seen.
	Detail string `json:"detail"`
	// Action is what to do about it, "" if nothing.
	Action string `json:"action"`
}

// Report has all checks. Its status is that of the worst one; a skipped check is none.
type Report struct {
	Checks []Check `json:"checks"`
	Status Status  `json:"status"`
}

// Count returns the number of checks with a status.
func (r Report) Count(s Status) (n int) {
	for _, c := range r.Checks {
		if c.Status == s {
			n++
		}
	}
	return n
}

// Text returns a line for each check, below it one with what to do, and at the end the counts.
func (r Report) Text() string {
	width := 0
	for _, c := range r.Checks {
		width = max(width, len(c.Name))
	}
	var text strings.Builder
	for _, c := range r.Checks {
		// A joined error has a line for each cause.
		fmt.Fprintf(&text, "%-4s  %-*s  %s\n", c.Status, width, c.Name, strings.ReplaceAll(c.Detail, "\n", "; "))
		if c.Action != "" {
			fmt.Fprintf(&text, "%*s%s\n", width+8, "", c.Action)
		}
	}
	warnings := "warnings"
	if r.Count(Warning) == 1 {
		warnings = "warning"
	}
	fmt.Fprintf(&text, "%d ok, %d %s, %d failed, %d skipped\n", r.Count(OK), r.Count(Warning), warnings, r.Count(Failure), r.Count(Skipped))
	return text.String()
}

// Options describe the deployment.
type Options struct {
	Settings server.Settings
	// ConfigFile is the operator's file, "" without one. Config is what it has, nil without a file and if it is wrong.
	ConfigFile string
	Config     *config.Config
	// ConfigWarnings are what the file asks for and does not get, ConfigErr why it cannot be used.
	ConfigWarnings []string
	ConfigErr      error
	// UnknownVariables are variables of the environment without effect, with a suggestion.
	UnknownVariables []string
	// Roots are the authorities that certificates are verified against, nil for those of the machine.
	Roots *x509.CertPool
}

// checkTimeout bounds a check, or the checks that share a connection. What does not answer until then counts as silent.
const checkTimeout = 20 * time.Second

// inspector runs the checks. Its fields are read-only; tests replace those of newInspector.
type inspector struct {
	Options
	// now is the clock of this process.
	now func() time.Time
	// resolve looks up the addresses of a host.
	resolve func(ctx context.Context, host string) error
	// listen opens a listener at an address and closes it.
	listen func(ctx context.Context, address string) error
	// public and private are the clients that agents call others with, without and with the grant private_network.
	public, private *egress.Client
	// helper is this executable, which the sandbox starts again.
	helper string
}

// newInspector returns an inspector with this machine's clock, resolver and clients.
func newInspector(o Options) *inspector {
	helper, _ := os.Executable() // "" makes the sandbox report that no program runs
	return &inspector{
		Options: o, now: time.Now, helper: helper, listen: listenBriefly,
		resolve: func(ctx context.Context, host string) error {
			_, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
			return err
		},
		public: egress.New(egress.Options{}), private: egress.New(egress.Options{PrivateNetwork: true}),
	}
}

// Inspect runs all checks. It returns when all have ended, at most some seconds after checkTimeout.
func Inspect(ctx context.Context, o Options) Report {
	return newInspector(o).inspect(ctx)
}

// inspect is [Inspect].
func (i *inspector) inspect(ctx context.Context) Report {
	defer i.public.Close()
	defer i.private.Close()
	groups := []func(context.Context) []Check{
		i.checkConfiguration, i.checkDefaultApp, i.checkListeners, i.checkSecrets, i.checkDatabase, i.checkRedis, i.checkSandbox, i.checkEgress,
		i.checkNames, i.checkDisk, i.checkCertificate, i.checkPublicURL, i.checkIssuer, i.checkTelemetry, i.checkUsageExport,
	}
	results := make([][]Check, len(groups))
	var g errgroup.Group
	for n, group := range groups {
		g.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, checkTimeout)
			defer cancel()
			results[n] = group(ctx)
			return nil
		})
	}
	_ = g.Wait() // the functions return nil
	r := Report{Status: OK}
	for _, checks := range results {
		for _, c := range checks {
			r.Checks = append(r.Checks, c)
			if c.Status == Failure || c.Status == Warning && r.Status == OK {
				r.Status = c.Status
			}
		}
	}
	return r
}

// pass returns a check that found nothing wrong.
func pass(name, format string, args ...any) Check {
	return Check{Name: name, Status: OK, Detail: fmt.Sprintf(format, args...)}
}

// skip returns a check that had nothing to look at.
func skip(name, detail string) Check { return Check{Name: name, Status: Skipped, Detail: detail} }

// skipAll returns checks of several names that had nothing to look at.
func skipAll(detail string, names ...string) (checks []Check) {
	for _, name := range names {
		checks = append(checks, skip(name, detail))
	}
	return checks
}

// warn returns a check that found what works but should be changed by action.
func warn(name, detail, action string) Check {
	return Check{Name: name, Status: Warning, Detail: detail, Action: action}
}

// fail returns a check that found what does not work until action is done.
func fail(name, detail, action string) Check {
	return Check{Name: name, Status: Failure, Detail: detail, Action: action}
}

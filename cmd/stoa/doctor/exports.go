package doctor

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"

	"golang.org/x/sys/unix"

	"stoa/agentsvc/egress"
	"stoa/cmd/stoa/server"
	"stoa/cmd/stoa/server/otlp"
)

// checkTelemetry sends an export without content to each collector that the OTEL_* variables select.
func (i *inspector) checkTelemetry(ctx context.Context) []Check {
	const name = "telemetry"
	targets, err := otlp.ProbeTargets(ctx)
	if err != nil {
		return []Check{fail(name, err.Error(), "correct the variable: a server does not start with it")}
	}
	if len(targets) == 0 {
		return []Check{skip(name, "no OTEL_ variable selects an export")}
	}
	var checks []Check
	for _, t := range targets {
		one := name + "_" + t.Signal
		if t.Err != nil {
			checks = append(checks, fail(one, t.Endpoint+": "+t.Err.Error(), "start the collector with a receiver for OTLP over HTTP, or correct OTEL_EXPORTER_OTLP_ENDPOINT; until then "+t.Signal+" are lost"))
			continue
		}
		checks = append(checks, pass(one, "%s takes exports", t.Endpoint))
	}
	return checks
}

// checkUsageExport reports whether the targets of the export of usage can be reached. It sends no usage: it connects, or
// looks at the folder.
func (i *inspector) checkUsageExport(ctx context.Context) []Check {
	const name = "usage_export"
	targets, err := i.Settings.ListExportTargets()
	if err != nil {
		return []Check{fail(name, err.Error(), "correct the variable: a server does not start with it")}
	}
	if len(targets) == 0 {
		return []Check{skip(name, "no STOA_EXPORT_ variable names a target")}
	}
	var checks []Check
	for _, t := range targets {
		one := name + "_" + t.Name
		place := cmp.Or(t.Folder, hostOf(t.URL))
		if err := i.reachTarget(ctx, t); err != nil {
			checks = append(checks, fail(one, place+": "+err.Error(), "correct the STOA_EXPORT_ variables, or let this machine reach the receiver; usage waits until then"))
			continue
		}
		checks = append(checks, pass(one, "%s can be reached", place))
	}
	return checks
}

// hostOf returns the host and port of a URL, whose path may have a credential.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "the address"
	}
	return u.Host
}

// reachTarget returns why an export cannot reach its target, nil if it can.
func (i *inspector) reachTarget(ctx context.Context, t server.ExportTarget) error {
	if t.Folder != "" {
		if err := unix.Access(t.Folder, unix.W_OK); err != nil {
			return errors.New("the folder cannot be written by this user")
		}
		return nil
	}
	client := i.public
	if t.Private {
		client = i.private
	}
	u, err := url.Parse(t.URL)
	if err != nil {
		return errors.New("it is no URL")
	}
	conn, err := client.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), map[string]string{"http": "80"}[u.Scheme], "443")))
	if err != nil {
		return errors.New(egress.PublicMessage(err))
	}
	defer func() { _ = conn.Close() }()
	if u.Scheme != "https" {
		return nil
	}
	c := client.TLS()
	c.ServerName = u.Hostname()
	if err := tls.Client(conn, c).HandshakeContext(ctx); err != nil {
		return errors.New(describeCertificateError(err))
	}
	return nil
}

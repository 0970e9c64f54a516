package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"
)

// healthCmd is `stoa health`, for the health checks of containers and supervisors, which may have no other HTTP client.
type healthCmd struct {
	Server  string        `env:"STOA_SERVER" placeholder:"URL" help:"The server (the one that STOA_HOST and STOA_PORT configure on this machine, else http://127.0.0.1:8080; https if it has a certificate)."`
	CA      string        `name:"ca" env:"STOA_CA_FILE" placeholder:"FILE" help:"PEM certificates of authorities to trust, besides those of this machine."`
	Ready   bool          `help:"Ask whether the process should get requests, not only whether it serves."`
	Timeout time.Duration `default:"5s" help:"How long to wait for the answer (${default})."`
	JSON    bool          `name:"json" help:"Print the answer's JSON."`
}

// Run prints the state of the process. It returns an error if there is no answer with the status 200 in time.
func (cmd *healthCmd) Run(ctx context.Context, c *console) error {
	ctx, cancel := context.WithTimeout(ctx, cmd.Timeout)
	defer cancel()
	path := "/health"
	if cmd.Ready {
		path = "/ready"
	}
	var answer map[string]any
	api, err := serverFlag{Server: cmp.Or(cmd.Server, localServer("http")), CA: cmd.CA}.newClient("")
	if err != nil {
		return err
	}
	err = api.trustLoopback().doJSON(ctx, http.MethodGet, path, nil, &answer)
	var refused *apiError
	if cmd.Server == "" && errors.As(err, &refused) && refused.Status == http.StatusBadRequest {
		// A process with a certificate answers a request without TLS with 400.
		api.baseURL = localServer("https")
		err = api.doJSON(ctx, http.MethodGet, path, nil, &answer)
	}
	switch {
	case err != nil:
		return err
	case cmd.JSON:
		return c.printJSON(answer)
	}
	c.printLine("%v", answer["status"])
	return nil
}

// localServer returns the address of a server on this machine that uses the environment of this process.
func localServer(scheme string) string {
	host := "127.0.0.1"
	if ip := net.ParseIP(os.Getenv("STOA_HOST")); ip != nil && !ip.IsUnspecified() {
		host = ip.String()
	}
	return scheme + "://" + net.JoinHostPort(host, cmp.Or(os.Getenv("STOA_PORT"), "8080"))
}

// trustLoopback makes the client accept every certificate of a server at an address of loopback, where the public name of
// the certificate does not match. It is for requests without a credential.
func (c *client) trustLoopback() *client {
	u, err := url.Parse(c.baseURL)
	if err != nil {
		return c
	}
	if ip := net.ParseIP(u.Hostname()); u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return c
	}
	transport := c.httpClient.Transport.(*http.Transport)
	if transport.TLSClientConfig == nil {
		transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	transport.TLSClientConfig.InsecureSkipVerify = true
	return c
}

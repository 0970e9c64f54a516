package doctor

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"time"
)

// checkListeners reports whether a server could listen at its addresses, or does so already.
func (i *inspector) checkListeners(ctx context.Context) []Check {
	const name = "listeners"
	addresses := i.Settings.Listeners()
	var free, served, taken, advice []string
	status := Warning
	for _, a := range addresses {
		where := a.Name + " at " + a.Address
		err := i.listen(ctx, a.Address)
		inUse, forbidden := errors.Is(err, syscall.EADDRINUSE), errors.Is(err, fs.ErrPermission)
		switch {
		case err == nil:
			free = append(free, where)
		case (inUse || forbidden) && i.servesStoa(ctx, addresses[0].Address):
			served = append(served, where)
		default:
			taken, advice = append(taken, where+": "+err.Error()), append(advice, a.Advise(err))
			if !forbidden { // the unit of a server may permit more than the shell that runs this
				status = Failure
			}
		}
	}
	if len(taken) > 0 {
		return []Check{{Name: name, Status: status, Detail: strings.Join(taken, "; "), Action: strings.Join(advice, "; ")}}
	}
	var seen []string
	if len(free) > 0 {
		seen = append(seen, "free: "+strings.Join(free, ", "))
	}
	if len(served) > 0 {
		seen = append(seen, "a server of Stoa has "+strings.Join(served, ", "))
	}
	return []Check{pass(name, "%s", strings.Join(seen, "; "))}
}

// listenBriefly opens a listener at an address and closes it.
func listenBriefly(ctx context.Context, address string) error {
	var c net.ListenConfig
	l, err := c.Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return l.Close()
}

// localTimeout bounds the question whether Stoa serves on this machine.
const localTimeout = 3 * time.Second

// servesStoa reports whether a server of Stoa answers at the address of an HTTP listener of this machine, over TLS or
// without.
func (i *inspector) servesStoa(ctx context.Context, address string) bool {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "localhost"
		if ip.Is4() {
			host = "127.0.0.1"
		}
	}
	// The certificate is for the public name. The request has no credential.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}
	client := &http.Client{Transport: transport, Timeout: localTimeout, CheckRedirect: stayHere}
	for _, scheme := range []string{"http://", "https://"} {
		answer, err := askHealth(ctx, client, scheme+net.JoinHostPort(host, port))
		if err == nil && answer.Status != "" && answer.Version != "" && answer.Database != "" {
			return true
		}
	}
	return false
}

// stayHere makes a client return a redirection as the answer: it is one of another server.
func stayHere(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// health is the part of the answer to /health by which a server of Stoa is recognised, and how it came.
type health struct {
	Status   string `json:"status"`
	Version  string `json:"version"`
	Database string `json:"database"`

	code int                  // of the response
	tls  *tls.ConnectionState // nil without TLS
}

// askHealth asks the server at an address for its health. Status is empty if the answer is not one of Stoa.
func askHealth(ctx context.Context, client *http.Client, address string) (answer health, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/health", nil)
	if err != nil {
		return health{}, fmt.Errorf("create the request: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return health{}, err
	}
	defer resp.Body.Close()
	const maxHealthBytes = 64 << 10
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxHealthBytes)).Decode(&answer); err != nil || resp.StatusCode != http.StatusOK {
		answer = health{} // of another server
	}
	answer.code, answer.tls = resp.StatusCode, resp.TLS
	return answer, nil
}

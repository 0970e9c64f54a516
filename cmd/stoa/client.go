package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"stoa/agentsvc/config/document"
	"stoa/authz"
	"stoa/cmd/stoa/server"
)

// serverFlag has the flags of every client command.
type serverFlag struct {
	Server string `default:"${defaultServer}" env:"STOA_SERVER" placeholder:"URL" help:"The server (${default})."`
	CA     string `name:"ca" env:"STOA_CA_FILE" placeholder:"FILE" help:"PEM certificates of authorities to trust, besides those of this machine."`
}

// defaultServer is where a server listens that was started on this machine without flags.
const defaultServer = "http://127.0.0.1:8080"

// client sends requests to a server's HTTP API with one credential.
type client struct {
	baseURL    string      // without a trailing slash
	header     http.Header // copied into every request
	httpClient *http.Client

	// What suggestToken suggests: the app of the token, "" = unknown, and the scopes that the command needs in any case.
	app    string
	scopes []authz.Scope
}

// Bounds of a client: the wait for the header of a response, also for a whole request of doJSON, and the bytes that
// it reads of a body. A stream may last longer than responseTimeout.
const (
	responseTimeout  = time.Minute
	maxResponseBytes = 64 << 20
)

// newClient returns a client for the server. bearer is an access token, an API key or the admin secret; "" sends no
// credential.
func (f serverFlag) newClient(bearer string) (*client, error) {
	u, err := url.Parse(f.Server)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, &exitError{code: exitUsage, cause: fmt.Errorf("--server must be a URL such as http://127.0.0.1:8080, it is %q", f.Server)}
	}
	// A clone, because the timeout must not change the default transport. It honours proxies of the environment.
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = responseTimeout
	if f.CA != "" {
		trusted, err := readAuthorities(f.CA)
		if err != nil {
			return nil, &exitError{code: exitUsage, cause: fmt.Errorf("--ca: %w", err)}
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}
	}
	header := http.Header{"User-Agent": {"stoa/" + strings.TrimPrefix(version, "v")}}
	if bearer != "" {
		header.Set("Authorization", "Bearer "+bearer)
	}
	return &client{baseURL: strings.TrimRight(f.Server, "/"), header: header, httpClient: &http.Client{Transport: transport}}, nil
}

// readAuthorities returns the authorities that this machine trusts and those whose certificates are in a file.
func readAuthorities(name string) (*x509.CertPool, error) {
	content, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	trusted, err := x509.SystemCertPool()
	if err != nil {
		trusted = x509.NewCertPool()
	}
	if !trusted.AppendCertsFromPEM(content) {
		return nil, fmt.Errorf("%s holds no certificate in PEM form, such as one that begins with -----BEGIN CERTIFICATE-----", name)
	}
	return trusted, nil
}

// newAdminClient returns a client with the admin secret as its credential.
func (f serverFlag) newAdminClient() (*client, error) {
	secret, err := server.FindAdminSecret()
	if err != nil {
		return nil, err
	}
	return f.newClient(secret)
}

// doJSON sends body as JSON, nothing if it is nil, and decodes the response into answer unless answer is nil or the
// response is empty. A response with another status than 2xx is an [*apiError].
func (c *client) doJSON(ctx context.Context, method, path string, body, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, responseTimeout)
	defer cancel()
	resp, err := c.sendRequest(ctx, method, path, "application/json", body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if answer == nil {
		return nil
	}
	err = json.NewDecoder(io.LimitReader(resp.Body, maxResponseBytes)).Decode(answer)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer of %s: %w", c.baseURL, err)
	}
	return nil
}

// sendRequest sends body as JSON, nothing if it is nil, and returns a response with a status 2xx, whose body the
// caller closes. Any other status is an [*apiError].
func (c *client) sendRequest(ctx context.Context, method, path, accept string, body any) (*http.Response, error) {
	var content io.Reader
	header := http.Header{"Accept": {accept}}
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
		content = bytes.NewReader(encoded)
		header.Set("Content-Type", "application/json")
	}
	return c.send(ctx, method, path, header, content)
}

// uploadTimeout bounds the sending of a file and its answer.
const uploadTimeout = 5 * time.Minute

// sendFile sends a file with header and decodes the response into answer. Its errors are those of doJSON.
func (c *client) sendFile(ctx context.Context, method, path string, header http.Header, content []byte, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, uploadTimeout)
	defer cancel()
	resp, err := c.send(ctx, method, path, header, bytes.NewReader(content))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxResponseBytes)).Decode(answer); err != nil {
		return fmt.Errorf("read the answer of %s: %w", c.baseURL, err)
	}
	return nil
}

// send sends a request with the client's headers and those of header. Its results are those of sendRequest.
func (c *client) send(ctx context.Context, method, path string, header http.Header, content io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.baseURL+path, content)
	if err != nil {
		return nil, err
	}
	req.Header = c.header.Clone()
	maps.Copy(req.Header, header)
	resp, err := c.httpClient.Do(req)
	if err != nil {
		return nil, c.unreachableError(err)
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, c.readError(resp)
}

// unreachableError returns the error for a request without a response. It removes the URL that net/http repeats, and
// adds what the user can do.
func (c *client) unreachableError(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	var unknown x509.UnknownAuthorityError
	if errors.As(err, &unknown) {
		return fmt.Errorf("no answer from %s: %w (trust the authority of its certificate with --ca FILE)", c.baseURL, err)
	}
	return fmt.Errorf("no answer from %s: %w (start a server with stoa serve, or name another with --server)", c.baseURL, err)
}

// apiError is a response of the server that is not 2xx.
type apiError struct {
	Status     int
	Code       string
	Message    string
	RequestID  string
	RetryAfter string // seconds, from the Retry-After header; "" = none
	Problems   []document.Problem
	// TokenCommand creates a token that has the scope whose lack is the error, "" if it is another error.
	TokenCommand string
}

// Error returns the message with the code, the request's id for the server's log, and the time to wait. Further lines have
// the Problems of a configuration, and the TokenCommand.
func (e *apiError) Error() string {
	details := []string{fmt.Sprintf("HTTP %d", e.Status)}
	if e.Code != "" {
		details = []string{e.Code}
	}
	if e.RequestID != "" {
		details = append(details, "request "+e.RequestID)
	}
	if e.RetryAfter != "" {
		details = append(details, "try again in "+e.RetryAfter+" s")
	}
	text := e.Message + " (" + strings.Join(details, ", ") + ")"
	for _, p := range e.Problems {
		text += "\n" + p.String()
	}
	if e.TokenCommand != "" {
		text += "\ncreate a token for it: " + e.TokenCommand
	}
	return text
}

// readError decodes the error body of the HTTP API. A body in another format, such as a proxy's page, is replaced by
// the status line.
func (c *client) readError(resp *http.Response) error {
	var body struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
			Details struct {
				RequestID string             `json:"request_id"`
				Errors    []document.Problem `json:"errors"`
			} `json:"details"`
		} `json:"error"`
	}
	e := &apiError{Status: resp.StatusCode, RetryAfter: resp.Header.Get("Retry-After")}
	// The error body may come from a proxy and not from Stoa.
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxResponseBytes)).Decode(&body); err != nil || body.Error.Message == "" {
		e.Message = fmt.Sprintf("%s answered %q, not in Stoa's words", c.baseURL, resp.Status)
		// So does Go's server where a connection is not encrypted and should be.
		if host, ok := strings.CutPrefix(c.baseURL, "http://"); ok && resp.StatusCode == http.StatusBadRequest {
			e.Message += "; if the server has a certificate, use --server https://" + host
		}
		return e
	}
	e.Code, e.Message = body.Error.Code, body.Error.Message
	e.RequestID, e.Problems = body.Error.Details.RequestID, body.Error.Details.Errors
	if e.Status == http.StatusForbidden {
		e.TokenCommand = c.suggestToken(e.Message)
	}
	return e
}

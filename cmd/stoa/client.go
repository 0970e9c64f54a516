package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"stoa/agentsvc/config"
)

// serverFlag names the server that a command talks to.
type serverFlag struct {
	Server string `default:"http://127.0.0.1:8080" env:"STOA_SERVER" placeholder:"URL" help:"The server (${default})."`
}

// client speaks to a server's HTTP API with one credential.
type client struct {
	baseURL    string      // without a slash at its end
	header     http.Header // goes with every request
	httpClient *http.Client
}

// How long a client waits for an answer to begin, and how much of one it reads.
const (
	responseTimeout  = time.Minute
	maxResponseBytes = 64 << 20
)

func newClient(server, bearer string) (*client, error) {
	u, err := url.Parse(server)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, &exitError{code: exitUsage, cause: fmt.Errorf("--server must be a URL such as http://127.0.0.1:8080, it is %q", server)}
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = responseTimeout
	header := http.Header{"User-Agent": {"stoa/" + strings.TrimPrefix(version, "v")}}
	if bearer != "" {
		header.Set("Authorization", "Bearer "+bearer)
	}
	return &client{baseURL: strings.TrimRight(server, "/"), header: header, httpClient: &http.Client{Transport: transport}}, nil
}

// newAdminClient returns a client that holds the admin secret.
func (f serverFlag) newAdminClient() (*client, error) {
	secret, err := findAdminSecret()
	if err != nil {
		return nil, err
	}
	return newClient(f.Server, secret)
}

// doJSON sends body, unless it is nil, as JSON and reads the answer into answer, unless that is nil or there
// is none. An answer that is no success is an [*apiError].
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

// sendRequest sends body, unless it is nil, as JSON and returns the answer, whose body the caller closes.
func (c *client) sendRequest(ctx context.Context, method, path, accept string, body any) (*http.Response, error) {
	var content io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
		content = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.baseURL+path, content)
	if err != nil {
		return nil, err
	}
	req.Header = c.header.Clone()
	req.Header.Set("Accept", accept)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
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

func (c *client) unreachableError(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return fmt.Errorf("no answer from %s: %w (start a server with stoa serve, or name another with --server)", c.baseURL, err)
}

// apiError is an answer that is no success.
type apiError struct {
	Status     int
	Code       string
	Message    string
	RequestID  string
	RetryAfter string // seconds to wait, as the server says
	Problems   []config.Problem
}

// Error returns the message with what an operator needs to find the request.
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
	return e.Message + " (" + strings.Join(details, ", ") + ")"
}

// readError reads what the server says about a request it did not carry out.
func (c *client) readError(resp *http.Response) error {
	var body struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
			Details struct {
				RequestID string           `json:"request_id"`
				Errors    []config.Problem `json:"errors"`
			} `json:"details"`
		} `json:"error"`
	}
	e := &apiError{Status: resp.StatusCode, RetryAfter: resp.Header.Get("Retry-After")}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxResponseBytes)).Decode(&body); err != nil || body.Error.Message == "" {
		e.Message = fmt.Sprintf("%s answered %q, not in Stoa's words", c.baseURL, resp.Status)
		return e
	}
	e.Code, e.Message = body.Error.Code, body.Error.Message
	e.RequestID, e.Problems = body.Error.Details.RequestID, body.Error.Details.Errors
	return e
}

// findAdminSecret finds the admin secret: in the environment, in the file that the environment names, or in the file
// that a server on SQLite keeps beside its database. While two are valid, the first is taken.
func findAdminSecret() (string, error) {
	secret, err := readSecret(adminSecretName)
	if secret != "" || err != nil {
		return firstSecret(secret), err
	}
	database, _ := lookupEnv("STOA_DATABASE")
	name := secretsFile(database)
	content, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the admin secret: %w", err)
	}
	if secret := findSecretValue(string(content), adminSecretName); secret != "" {
		return firstSecret(secret), nil
	}
	return "", fmt.Errorf("no admin secret: set %s or %s_FILE, or run this where the server's %s lies",
		adminSecretName, adminSecretName, filepath.Base(name))
}

// secretsFile returns the file in which a server keeps the secrets it made, which lies beside its SQLite database.
func secretsFile(database string) string {
	path, ok := strings.CutPrefix(database, "sqlite://")
	path, _, _ = strings.Cut(path, "?")
	if !ok || path == ":memory:" {
		path = "stoa.db"
	}
	return filepath.Join(filepath.Dir(path), "stoa.secrets")
}

func firstSecret(list string) string {
	one, _, _ := strings.Cut(list, ",")
	return strings.TrimSpace(one)
}

package stoa

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// ErrRefused is wrapped by the error of an admin call that was not answered with success.
var ErrRefused = errors.New("refused")

// App is a tenant to be created.
type App struct {
	Name    string            `json:"name"`
	Config  any               `json:"config"`
	Secrets map[string]string `json:"secrets,omitempty"`
	Grants  []string          `json:"grants,omitempty"`
	Limits  map[string]any    `json:"limits,omitempty"`
}

// Create makes the app and returns a token that may call its agents.
func (s *Server) Create(ctx context.Context, a App) (token string, err error) {
	if err := s.post(ctx, "/admin/apps", a, nil); err != nil {
		return "", fmt.Errorf("create the app %s: %w", a.Name, err)
	}
	return s.token(ctx, a.Name, "caller", "agents:call")
}

// token returns a new token of an app.
func (s *Server) token(ctx context.Context, app, role, scope string) (string, error) {
	var answer struct {
		AccessToken string `json:"access_token"`
	}
	spec := object{"sub": "ana", "roles": []string{role}, "scope": scope, "ttl": "24h"}
	err := s.post(ctx, "/admin/apps/"+app+"/tokens", spec, &answer)
	if err != nil {
		return "", fmt.Errorf("make a token for %s: %w", app, err)
	}
	return answer.AccessToken, nil
}

// Turn lets an app work, or suspends it.
func (s *Server) Turn(ctx context.Context, app string, on bool) error {
	to := ":suspend"
	if on {
		to = ":resume"
	}
	return s.post(ctx, "/admin/apps/"+app+to, struct{}{}, nil)
}

// Waiting is how many runs wait or are at work.
func (s *Server) Waiting(ctx context.Context) (int, error) {
	var q struct{ Pending, Running int }
	err := s.send(ctx, http.MethodGet, "/admin/queue", s.admin, nil, &q)
	return q.Pending + q.Running, err
}

func (s *Server) post(ctx context.Context, path string, body, answer any) error {
	return s.send(ctx, http.MethodPost, path, s.admin, body, answer)
}

func (s *Server) send(ctx context.Context, method, path, bearer string, body, answer any) error {
	var raw []byte
	if body != nil {
		var err error
		if raw, err = json.Marshal(body); err != nil {
			return fmt.Errorf("encode the request: %w", err)
		}
	}
	got, err := s.exchange(ctx, method, path, bearer, raw)
	if err != nil || answer == nil {
		return err
	}
	if err := json.Unmarshal(got, answer); err != nil {
		return fmt.Errorf("decode the answer: %w", err)
	}
	return nil
}

// read posts body and returns the whole answer.
func (s *Server) read(ctx context.Context, path, bearer, body string) (string, error) {
	got, err := s.exchange(ctx, http.MethodPost, path, bearer, []byte(body))
	return string(got), err
}

// exchange sends body, as JSON unless one of the headers, names and values in turn, says what it is.
func (s *Server) exchange(ctx context.Context, method, path, bearer string, body []byte, headers ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.URL+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+bearer)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("send: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if resp.StatusCode/100 != 2 {
		return nil, fmt.Errorf("%w: status %d: %.300s", ErrRefused, resp.StatusCode, got)
	}
	return got, nil
}

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
}

// Create makes the app and returns a token that may call its agents.
func (s *Server) Create(ctx context.Context, a App) (token string, err error) {
	if err := s.post(ctx, "/admin/apps", a, nil); err != nil {
		return "", fmt.Errorf("create the app %s: %w", a.Name, err)
	}
	var answer struct {
		AccessToken string `json:"access_token"`
	}
	err = s.post(ctx, "/admin/apps/"+a.Name+"/tokens", map[string]string{"sub": "ana", "scope": "agents:call", "ttl": "24h"}, &answer)
	if err != nil {
		return "", fmt.Errorf("make a token for %s: %w", a.Name, err)
	}
	return answer.AccessToken, nil
}

func (s *Server) post(ctx context.Context, path string, body, answer any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode the request: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+path, bytes.NewReader(raw))
	if err != nil {
		return fmt.Errorf("make the request: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+s.admin)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("send: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if resp.StatusCode != http.StatusCreated {
		return fmt.Errorf("%w: status %d: %.300s", ErrRefused, resp.StatusCode, got)
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(got, answer); err != nil {
		return fmt.Errorf("decode the answer: %w", err)
	}
	return nil
}

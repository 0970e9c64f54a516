// Package jwkstest has keys for tests and an issuer's address that publishes them.
package jwkstest

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// PrivateKeys are keys of every kind; RSA has 2048 bits, ShortRSA 1024, EC is on P-256 and LongEC on P-384.
type PrivateKeys struct {
	Ed, OtherEd   ed25519.PrivateKey
	RSA, ShortRSA *rsa.PrivateKey
	EC, LongEC    *ecdsa.PrivateKey
}

// Keys returns the keys that tests sign with, generated once because RSA keys take long.
var Keys = sync.OnceValue(func() (k PrivateKeys) {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	var err error
	_, k.Ed, err = ed25519.GenerateKey(rand.Reader)
	must(err)
	_, k.OtherEd, err = ed25519.GenerateKey(rand.Reader)
	must(err)
	k.RSA, err = rsa.GenerateKey(rand.Reader, 2048)
	must(err)
	k.ShortRSA, err = rsa.GenerateKey(rand.Reader, 1024)
	must(err)
	k.EC, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	k.LongEC, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	must(err)
	return k
})

// NewPublicKey returns the public part of Keys().Ed under an id.
func NewPublicKey(kid string) jose.JSONWebKey {
	return jose.JSONWebKey{Key: Keys().Ed.Public(), KeyID: kid, Use: "sig"}
}

// EncodeSet returns keys as a JSON Web Key Set.
func EncodeSet(keys ...jose.JSONWebKey) string {
	all := make([]json.RawMessage, len(keys))
	for i, k := range keys {
		all[i] = mustMarshal(k)
	}
	return string(mustMarshal(map[string]any{"keys": all}))
}

func mustMarshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// Server is an issuer's JWKS address as an [http.RoundTripper].
type Server struct {
	// mu guards the fields below.
	mu      sync.Mutex
	status  int // 0 = the connection fails
	body    string
	fetches []time.Time
	block   <-chan struct{} // delays responses until it is closed; may be nil
}

// NewServer returns a server that answers with status and body; with the status 0 connections fail.
func NewServer(status int, body string) *Server { return &Server{status: status, body: body} }

// RoundTrip implements [http.RoundTripper].
func (s *Server) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.fetches = append(s.fetches, time.Now())
	status, body, block := s.status, s.body, s.block
	s.mu.Unlock()
	if block != nil {
		select {
		case <-block:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	if status == 0 {
		return nil, errors.New("connection refused")
	}
	return &http.Response{StatusCode: status, Status: fmt.Sprint(status), Body: io.NopCloser(strings.NewReader(body)), Header: http.Header{}, Request: r}, nil
}

// SetResponse changes the response.
func (s *Server) SetResponse(status int, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status, s.body = status, body
}

// SetBlock makes responses wait until block is closed; nil ends the waiting of later ones.
func (s *Server) SetBlock(block <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.block = block
}

// Fetches returns the times of all requests.
func (s *Server) Fetches() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]time.Time{}, s.fetches...)
}

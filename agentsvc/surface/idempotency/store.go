// Package idempotency stores the responses of requests that carry an idempotency key, so that a repetition of a request
// gets the response of the first one and takes no effect.
package idempotency

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

const (
	// responseTTL is how long the response to a request with an idempotency key is stored.
	responseTTL = 24 * time.Hour
	// claimTimeout is how long a request may take. After it the same request may claim the key again, since the process
	// that claimed it has probably died.
	claimTimeout = 5 * time.Minute
	// maxKeySize bounds an idempotency key, in bytes.
	maxKeySize = 255
	// cleanupInterval is the time between two deletions of expired keys.
	cleanupInterval = 30 * time.Second
	// maxEndAttempts is how often the end of a claim is written while the database is unavailable.
	maxEndAttempts = 5
)

// ErrInProgress reports that the first request with this idempotency key has not been answered yet.
var ErrInProgress = agentsvc.NewError(agentsvc.CodeState, "the first call with this Idempotency-Key is still in progress")

// Store holds the keys in the platform's database, with the responses to their requests. It is safe for concurrent use,
// in any number of processes on one database.
type Store struct {
	db  *db.Handle
	log *slog.Logger
}

// New returns the store in d. log receives the errors of [Store.Run].
func New(d *db.DB, log *slog.Logger) *Store { return &Store{db: d.Platform(), log: log} }

// Request is a request that carries an idempotency key. The key belongs to its actor; two actors may use the same one.
type Request struct {
	Actor  string
	Key    string
	Method string
	// Path is the request's path with its query.
	Path string
	Body []byte
}

// requestHash identifies the request: SHA-256 of method, path and body, in hex. Quoting makes the parts unambiguous.
func (r Request) requestHash() string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q ", r.Method, r.Path)
	h.Write(r.Body)
	return hex.EncodeToString(h.Sum(nil))
}

// checkKey returns an error with [agentsvc.CodeInvalid] for a key that is empty, too long or not text.
func checkKey(key string) error {
	if key == "" || len(key) > maxKeySize || !utf8.ValidString(key) || strings.ContainsRune(key, 0) {
		return agentsvc.NewInvalidError("Idempotency-Key", "must have 1 to %d characters", maxKeySize)
	}
	return nil
}

// Response is the response to a request. The caller removes secrets from it before it is stored.
//
// The fields that JSON has are stored as one text.
type Response struct {
	Status int `json:"-"`
	// App is the app that the response is about, "" if none; the response is deleted with it.
	App db.ID `json:"-"`
	// Location and ETag are the headers of these names, "" = none.
	Location string `json:"location,omitempty"`
	ETag     string `json:"etag,omitempty"`
	// Body is JSON, empty if the response has none.
	Body json.RawMessage `json:"body,omitempty"`
}

// Claim is the right to carry out a request. Exactly one of StoreResponse and ReleaseKey must be called.
type Claim struct {
	store      *Store
	actor, key string
	// id is random and fences the end of the claim: after claimTimeout another process may have claimed the key, and
	// then the statements of this claim match no row.
	id string
}

// Claim claims the request's key. If the same request was answered before, it returns that response and no claim. It
// returns [ErrInProgress] if the request is being carried out, and [agentsvc.ErrKeyReused] if the key was used for a
// different request. Keys expire after responseTTL.
func (s *Store) Claim(ctx context.Context, r Request) (*Claim, *Response, error) {
	if err := checkKey(r.Key); err != nil {
		return nil, nil, err
	}
	c := &Claim{s, r.Actor, r.Key, uuid.NewString()}
	var response *Response
	err := s.db.RunTx(ctx, func(tx *db.Tx) (err error) {
		response, err = c.claimKey(ctx, tx, r.requestHash())
		return err
	})
	switch {
	case err != nil:
		return nil, nil, err
	case response != nil:
		return nil, response, nil
	}
	return c, nil, nil
}

// claimKey returns the stored response, or nil if c now owns the key. The statement inserts the key or takes over a row
// in one step, so that of two concurrent requests only one succeeds. A row is taken over if it has expired, or if the
// same request was claimed more than claimTimeout ago and not answered. Status 0 marks a request in progress.
func (c *Claim) claimKey(ctx context.Context, tx *db.Tx, request string) (*Response, error) {
	n, err := tx.Exec(ctx, `INSERT INTO admin_call (actor, key, request, claim, status, body, app_id, created_at)
		VALUES ($1, $2, $3, $4, 0, '', '', stoa_now())
		ON CONFLICT (actor, key) DO UPDATE SET request = excluded.request, claim = excluded.claim, status = 0, body = '', app_id = '',
			created_at = excluded.created_at
		WHERE admin_call.created_at < stoa_now() - $5
			OR admin_call.status = 0 AND admin_call.request = excluded.request AND admin_call.created_at < stoa_now() - $6`,
		c.actor, c.key, request, c.id, responseTTL.Microseconds(), claimTimeout.Microseconds())
	if err != nil || n == 1 {
		return nil, err
	}
	var response Response
	var stored, body, app string
	err = tx.Query(ctx, func(row db.Row) error { return row.Scan(&stored, &response.Status, &body, &app) },
		`SELECT request, status, body, app_id FROM admin_call WHERE actor = $1 AND key = $2`, c.actor, c.key)
	switch {
	case err != nil:
		return nil, err
	case stored != request:
		return nil, agentsvc.ErrKeyReused
	case response.Status == 0:
		return nil, ErrInProgress
	}
	response.App = db.ID(app)
	if err := json.Unmarshal([]byte(body), &response); err != nil {
		return nil, fmt.Errorf("decode a stored response: %w", err)
	}
	return &response, nil
}

// StoreResponse stores the response, for repetitions of the request, and ends the claim.
func (c *Claim) StoreResponse(ctx context.Context, a Response) error {
	content, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("encode the response of an idempotent call: %w", err)
	}
	return c.endClaim(ctx, `UPDATE admin_call SET status = $4, body = $5, app_id = $6 WHERE actor = $1 AND key = $2 AND claim = $3`,
		a.Status, string(content), string(a.App))
}

// ReleaseKey deletes the key and ends the claim: the request had no effect and may be tried again.
func (c *Claim) ReleaseKey(ctx context.Context) error {
	return c.endClaim(ctx, `DELETE FROM admin_call WHERE actor = $1 AND key = $2 AND claim = $3 AND status = 0`)
}

// endClaim executes a statement that ends the claim; it is repeated while the database is unavailable.
func (c *Claim) endClaim(ctx context.Context, sql string, args ...any) error {
	var b db.Batch
	b.Exec(nil, sql, append([]any{c.actor, c.key, c.id}, args...)...)
	err := c.store.db.Do(ctx, &b)
	for try := 1; db.IsUnavailable(err) && try < maxEndAttempts && ctx.Err() == nil; try++ {
		err = c.store.db.Do(ctx, &b) // idempotent; without it the key would stay claimed for claimTimeout
	}
	if err != nil {
		return fmt.Errorf("store the response of an idempotent call: %w", err)
	}
	return nil
}

// DeleteApp deletes the responses about an app, for an app that is deleted.
func (s *Store) DeleteApp(ctx context.Context, app db.ID) error {
	var b db.Batch
	b.Exec(nil, `DELETE FROM admin_call WHERE app_id = $1`, string(app))
	if err := s.db.Do(ctx, &b); err != nil {
		return fmt.Errorf("delete the stored responses about app %s: %w", app, err)
	}
	return nil
}

// Run deletes expired keys until ctx ends, whose error it returns.
func (s *Store) Run(ctx context.Context) error {
	tick := time.NewTicker(cleanupInterval)
	defer tick.Stop()
	for {
		if err := s.deleteExpired(ctx); err != nil && ctx.Err() == nil {
			s.log.ErrorContext(ctx, "expired idempotency keys could not be deleted", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// deleteExpired deletes keys older than responseTTL, through the index admin_call_created.
func (s *Store) deleteExpired(ctx context.Context) error {
	var b db.Batch
	b.Exec(nil, `DELETE FROM admin_call WHERE created_at < stoa_now() - $1`, responseTTL.Microseconds())
	if err := s.db.Do(ctx, &b); err != nil {
		return fmt.Errorf("delete expired idempotency keys: %w", err)
	}
	return nil
}
